package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
)

// SQLite names its log and what its processes share by the path of the database. So a file under two paths has two
// logs, of which neither shows the other's leases. This file of the package finds such paths.

// companions are what SQLite appends to the path of a database to name the files that belong to it.
var companions = []string{"-wal", "-shm", "-journal"}

// maxLinks is how many symbolic links are followed one after another, as on Linux.
const maxLinks = 40

// follow returns the path that the symbolic links at the end of a path lead to, also if no file is there yet. Links
// to the folder stay: a folder has the same files under all its paths.
func follow(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return path, nil // what is wrong with it SQLite says
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", fmt.Errorf("sqlite: %w: %w", backend.ErrUnavailable, err)
		}
		if !filepath.IsAbs(target) {
			folder, _ := filepath.Split(path)
			target = folder + target // not cleaned: ".." leads out of what the folder before it is a link to
		}
		folder, name := filepath.Split(target)
		if folder, err = filepath.EvalSymlinks(folder); err != nil {
			return "", fmt.Errorf("sqlite: %w: the folder of %s, where %s leads to, cannot be read: make it first: %w", backend.ErrUnavailable, target, path, err)
		}
		path = filepath.Join(folder, name)
	}
	return "", fmt.Errorf("sqlite: %w: %s: more than %d symbolic links one after another", backend.ErrUnavailable, path, maxLinks)
}

// onePath returns an error unless each process that reaches the file reaches it by one name in one folder, as far as
// this system tells. The path has no symbolic link at its end. A file that is not there yet is fine.
func onePath(path string) error {
	for i, suffix := range append([]string{""}, companions...) {
		info, err := os.Lstat(path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			if i == 0 {
				return nil
			}
			continue
		}
		if err == nil {
			err = oneFile(path+suffix, info)
		} else {
			err = fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
		if err != nil {
			return fmt.Errorf("sqlite: %w", err)
		}
	}
	if err := ownName(path); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return nil
}

// oneFile returns an error if a file has another path outside of its folder, or beside it.
func oneFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is no plain file (%v): SQLite needs the database and its log side by side in one folder", backend.ErrInvalid, path, info.Mode().Type())
	}
	links, err := linksOf(path, info)
	if err != nil {
		return fmt.Errorf("%w: the links of %s cannot be counted: %w", backend.ErrUnavailable, path, err)
	}
	if links > 1 {
		return fmt.Errorf("%w: %s has %d links: SQLite keeps a log for each path, so under two paths two could hold one name: remove the other links, and where a second path is needed, mount the folder or make a symbolic link", backend.ErrInvalid, path, links)
	}
	return apart(path)
}

// listed returns an error unless the folder of a file lists it under the name that it was opened by, in whichever case:
// a file system that ignores case does so for the log as well.
func listed(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("%w: the folder of %s cannot be listed, and its file system may find one file under several names: make the folder readable: %w", backend.ErrUnavailable, path, err)
	}
	defer folder.Close()
	name := filepath.Base(path)
	for {
		const atOnce = 1000
		names, err := folder.Readdirnames(atOnce)
		if slices.ContainsFunc(names, func(other string) bool { return strings.EqualFold(name, other) }) {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: %s is the file of another name in its folder, a longer one or one without dots at its end: SQLite names its log by the path, so two could hold one name: open it by the name that its folder lists", backend.ErrInvalid, path)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
	}
}
