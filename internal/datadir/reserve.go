package datadir

import (
	"errors"
	"io/fs"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// reserveFile is the name of the file in the data folder whose blocks are part of the reserve of disk space.
const reserveFile = "RESERVE"

// Reserve keeps a part of the reserve of disk space in a file, where the system can reserve blocks for one, so that
// other programs cannot fill it. The file is removed when the member needs the space itself, and comes back later. Its
// blocks count as free: the reserve is as large with the file as without.
type Reserve struct {
	files   vfs.FS
	dir     string
	bytes   uint64 // of the file; 0 keeps none
	reserve func(fd uintptr, offset, length int64) error
	free    func(dir string) (uint64, error)

	mu   sync.Mutex
	held uint64 // 0 or bytes
}

// NewReserve returns a reserve of that many bytes in a data directory, as far as the system can reserve blocks; 0 keeps
// none. free tells how much the file system of a folder has left.
func NewReserve(files vfs.FS, dir string, bytes uint64, free func(dir string) (uint64, error)) *Reserve {
	r := &Reserve{files: files, dir: dir, bytes: bytes, reserve: extend, free: free}
	if !canExtend {
		r.bytes = 0
	}
	return r
}

// Look returns how many bytes are free, with those of the file, and makes or removes the file if it is time to.
func (r *Reserve) Look() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err := r.free(r.dir)
	if err != nil || r.bytes == 0 {
		return free, err
	}
	switch {
	case r.held > 0 && free < r.bytes/2:
		// What keeps promises needs the space now: renewals, ends of leases, compaction.
		if err := r.files.Remove(r.path()); err != nil {
			return free, err
		}
		r.held = 0
		return r.free(r.dir)
	case r.held == 0 && free > 4*r.bytes:
		// There is twice the whole reserve: to take a part of it begins no shortage.
		if err := r.take(); err == nil {
			free, err = r.free(r.dir)
			return free + r.held, err
		}
		r.bytes = 0 // this file system cannot, or not now; the reserve is watched as before
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

// removeReserve removes the file of an earlier process before the database is opened, which may need the space to start.
func removeReserve(files vfs.FS, dir string) error {
	path := files.PathJoin(dir, reserveFile)
	if _, err := files.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return files.Remove(path)
}
