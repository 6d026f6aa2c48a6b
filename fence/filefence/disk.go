package filefence

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// disk is the part of a file system that a write uses. Each of its methods is one step, after which the machine may
// stop.
type disk interface {
	// mkdir creates a directory, unless it exists.
	mkdir(name string) error
	// create creates a file. The error is fs.ErrExist if it exists.
	create(name string, perm fs.FileMode) (file, error)
	// rename renames a file in one step, and replaces a file of the new name.
	rename(from, to string) error
	remove(name string) error
	// list returns the names in a directory. Names that are created or removed meanwhile may be missing.
	list(dir string) ([]string, error)
	// syncDir flushes the names in a directory to disk.
	syncDir(dir string) error
}

type file interface {
	Write([]byte) (int, error)
	Sync() error
	Close() error
}

// machine is the file system of the machine.
type machine struct{}

func (machine) mkdir(name string) error {
	// Every user who may write to the parent directory may remove this one, so stricter permissions gain nothing.
	err := os.Mkdir(name, 0o777)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (machine) create(name string, perm fs.FileMode) (file, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return f, nil
}

func (machine) rename(from, to string) error { return os.Rename(from, to) }

func (machine) remove(name string) error { return os.Remove(name) }

func (machine) list(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (machine) syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot flush a directory
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
