package node

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// spareDescriptors is how many descriptors a spareFS holds for moments in which the process has no other left.
	spareDescriptors = 16
	// spareWait bounds how long opening a file is tried again for want of a descriptor, and sparePause is the time
	// between two attempts.
	spareWait  = time.Minute
	sparePause = 20 * time.Millisecond
)

// spareFS is a file system that can open files while the process, or the machine, has no descriptor left. It holds some
// of its own, and gives one away for each file that could not be opened otherwise. To lack a descriptor is a matter of
// the moment; without this the database would take it for a broken disk. Writing and syncing need no descriptor: their
// errors pass as they are.
type spareFS struct {
	vfs.FS
	reserve *descriptorReserve
}

// newSpareFS returns files with spare descriptors. The caller closes them after the last use.
func newSpareFS(files vfs.FS, stop <-chan struct{}) spareFS {
	s := &descriptorReserve{stop: stop, open: func() (io.Closer, error) { return os.Open(os.DevNull) }}
	s.fill()
	return spareFS{files, s}
}

// descriptorReserve are descriptors that wait to be needed.
type descriptorReserve struct {
	open func() (io.Closer, error)
	stop <-chan struct{} // ends all waiting

	mu     sync.Mutex
	held   []io.Closer
	closed bool
}

// lacksDescriptor says whether an error means that the process (EMFILE) or the machine (ENFILE) has no descriptor left.
func lacksDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// fill takes as many descriptors as are missing, or as there are.
func (s *descriptorReserve) fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && len(s.held) < spareDescriptors {
		d, err := s.open()
		if err != nil {
			return
		}
		s.held = append(s.held, d)
	}
}

// give gives one descriptor back to the process.
func (s *descriptorReserve) releaseOne() (released bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 {
		return false
	}
	last := len(s.held) - 1
	s.held[last].Close()
	s.held[last] = nil
	s.held = s.held[:last]
	return true
}

func (s *descriptorReserve) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for s.releaseOne() {
	}
}

// withDescriptor calls something that needs a descriptor until it does not fail for want of one, or spareWait is over.
// Each call takes back what was given away before, so the reserve is whole again soon after a want has ended.
func withDescriptor[T any](s *descriptorReserve, open func() (T, error)) (T, error) {
	defer s.fill()
	v, err := open()
	if err == nil || !lacksDescriptor(err) {
		return v, err
	}
	for limit := time.Now().Add(spareWait); lacksDescriptor(err) && time.Now().Before(limit); {
		// Somebody else may be faster to take what was given, so it may take several.
		if !s.releaseOne() {
			select {
			case <-time.After(sparePause):
			case <-s.stop:
				return v, err
			}
		}
		v, err = open()
	}
	return v, err
}

// Create is part of vfs.FS.
func (f spareFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return withDescriptor(f.reserve, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

// Open is part of vfs.FS.
func (f spareFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return withDescriptor(f.reserve, func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

// OpenReadWrite is part of vfs.FS.
func (f spareFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return withDescriptor(f.reserve, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

// OpenDir is part of vfs.FS.
func (f spareFS) OpenDir(name string) (vfs.File, error) {
	return withDescriptor(f.reserve, func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

// ReuseForWrite is part of vfs.FS. It renames the file before it opens it, so an attempt that is repeated may find that
// done.
func (f spareFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	if err == nil || !lacksDescriptor(err) {
		return file, err
	}
	return withDescriptor(f.reserve, func() (vfs.File, error) {
		if _, err := f.FS.Stat(oldname); err == nil {
			return f.FS.ReuseForWrite(oldname, newname, category)
		}
		return f.FS.OpenReadWrite(newname, category)
	})
}

// Lock is part of vfs.FS.
func (f spareFS) Lock(name string) (io.Closer, error) {
	return withDescriptor(f.reserve, func() (io.Closer, error) { return f.FS.Lock(name) })
}

// List is part of vfs.FS.
func (f spareFS) List(dir string) ([]string, error) {
	return withDescriptor(f.reserve, func() ([]string, error) { return f.FS.List(dir) })
}

// RemoveAll is part of vfs.FS. It opens the folders that it empties.
func (f spareFS) RemoveAll(name string) error {
	_, err := withDescriptor(f.reserve, func() (struct{}, error) { return struct{}{}, f.FS.RemoveAll(name) })
	return err
}

// Unwrap is part of vfs.FS.
func (f spareFS) Unwrap() vfs.FS { return f.FS }
