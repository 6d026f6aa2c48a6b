package datadir

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// reserveFile is the file in the data directory whose blocks are part of the reserve of disk space.
const reserveFile = "RESERVE"

// Reserve keeps a part of the reserve of disk space in a file, so that other programs cannot fill it. It does so
// where the system can reserve blocks for a file. Reserve removes the file when the member needs the space itself,
// and makes it again later. Its blocks count as free, so the total reserve is the same with and without the file.
type Reserve struct {
	files   vfs.FS
	dir     string
	bytes   uint64 // size of the file; 0: no file
	reserve func(fd uintptr, offset, length int64) error
	free    func(dir string) (uint64, error)

	mu   sync.Mutex
	held uint64 // reserved bytes: 0 or bytes
}

// NewReserve returns a reserve of the given size in a data directory; 0 means none. It is also empty if the system
// cannot reserve blocks. free returns the free bytes of a directory's file system.
func NewReserve(files vfs.FS, dir string, bytes uint64, free func(dir string) (uint64, error)) *Reserve {
	r := &Reserve{files: files, dir: dir, bytes: bytes, reserve: extend, free: free}
	if !canExtend {
		r.bytes = 0
	}
	return r
}

// Look returns the free bytes, including those of the file. It makes or removes the file if necessary.
func (r *Reserve) Look() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := r.free(r.dir)
	if err != nil || r.bytes == 0 {
		return free, err
	}
	switch {
	case r.held > 0 && free < r.bytes/2:
		// The member now needs the space for renewals, ends of leases and compaction.
		if err := r.files.Remove(r.path()); err != nil {
			return free, err
		}
		r.held = 0
		return r.free(r.dir)
	case r.held == 0 && free > 4*r.bytes:
		// There is twice the whole reserve, so taking a part of it causes no shortage.
		if err := r.take(); err == nil {
			free, err = r.free(r.dir)
			return free + r.held, err
		}
		r.bytes = 0 // the file system cannot reserve blocks: do without the file
	}
	return free + r.held, nil
}

func (r *Reserve) path() string { return r.files.PathJoin(r.dir, reserveFile) }

// take makes the file.
func (r *Reserve) take() error {
	f, err := r.files.Create(r.path(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	err = vfs.ErrUnsupported
	if fd := f.Fd(); fd != vfs.InvalidFd {
		err = r.reserve(fd, 0, int64(r.bytes))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, r.files.Remove(r.path()))
	}
	r.held = r.bytes
	return nil
}

// removeReserve removes the file of an earlier process before the database is opened, because the database may need
// the space.
func removeReserve(files vfs.FS, dir string) error {
	path := files.PathJoin(dir, reserveFile)
	if _, err := files.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return files.Remove(path)
}
