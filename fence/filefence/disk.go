package filefence

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// disk is what a write asks of a file system. Each of its methods is one step, after which the machine may
// stop.
type disk interface {
	// mkdir makes a folder, unless it is there.
	mkdir(name string) error
	// create makes a file that must not be there; the error is fs.ErrExist if it is.
	create(name string, perm fs.FileMode) (file, error)
	// rename gives a file another name, in one step, also if that name is taken.
	rename(from, to string) error
	remove(name string) error
	// list returns the names in a folder. Those that come or go meanwhile may be missing.
	list(dir string) ([]string, error)
	// syncDir has the names in a folder on disk.
	syncDir(dir string) error
}

type file interface {
	Write([]byte) (int, error)
	Sync() error
	Close() error
}

// machine is the disk of the machine.
type machine struct{}

func (machine) mkdir(name string) error {
	// Everybody who may write to the folder above may remove this one, so nothing is gained by less.
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
		return nil // it has nothing of the kind
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
