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

// SQLite names its log and its shared memory by the path of the database. So a file under two paths has two
// logs, and neither shows the other's leases. This file of the package finds such paths.

// companions are what SQLite appends to the path of a database to name the files that belong to it.
var companions = []string{"-wal", "-shm", "-journal"}

// maxLinks is how many symbolic links are followed one after another, as on Linux.
const maxLinks = 40

// follow returns the path to which the symbolic links at the end of a path lead, even if no file exists there
// yet. Links to the directory stay: a directory has the same files under all its paths.
func follow(path string) (string, error) {
	for range maxLinks {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return path, nil // SQLite reports what is wrong with it
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", fmt.Errorf("sqlite: %w: %w", backend.ErrUnavailable, err)
		}
		if !filepath.IsAbs(target) {
			folder, _ := filepath.Split(path)
			target = folder + target // not cleaned: ".." leads out of the directory to which the link points
		}
		folder, name := filepath.Split(target)
		if folder, err = filepath.EvalSymlinks(folder); err != nil {
			return "", fmt.Errorf("sqlite: %w: the directory of %s, where %s leads to, cannot be read: make it first: %w", backend.ErrUnavailable, target, path, err)
		}
		path = filepath.Join(folder, name)
	}
	return "", fmt.Errorf("sqlite: %w: %s: more than %d symbolic links one after another", backend.ErrUnavailable, path, maxLinks)
}

// onePath returns an error unless every process that reaches the file does so by one name in one directory, as
// far as this system can tell. The path has no symbolic link at its end. It is no error if the file does not
// exist yet.
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

// oneFile returns an error if a file has another path outside of its directory, or in it.
func oneFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is no plain file (%v): SQLite needs the database and its log side by side in one directory", backend.ErrInvalid, path, info.Mode().Type())
	}
	links, err := linksOf(path, info)
	if err != nil {
		return fmt.Errorf("%w: the links of %s cannot be counted: %w", backend.ErrUnavailable, path, err)
	}
	if links > 1 {
		return fmt.Errorf("%w: %s has %d links: SQLite keeps a log for each path, so under two paths two could hold one name: remove the other links, and where a second path is needed, mount the directory or make a symbolic link", backend.ErrInvalid, path, links)
	}
	return apart(path)
}

// listed returns an error unless the directory of a file lists it under the name by which it was opened, in
// whatever case: a file system that ignores case does so for the log as well.
func listed(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("%w: the directory of %s cannot be listed, and its file system may find one file under several names: make the directory readable: %w", backend.ErrUnavailable, path, err)
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
			return fmt.Errorf("%w: %s is the file of another name in its directory, a longer one or one without dots at its end: SQLite names its log by the path, so two could hold one name: open it by the name that its directory lists", backend.ErrInvalid, path)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
	}
}
