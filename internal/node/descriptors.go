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
	// spareDescriptors is the number of file descriptors that a spareFS holds in reserve.
	spareDescriptors = 16
	// spareWait bounds the time for which opening a file is retried while descriptors are lacking. sparePause is the
	// time between two attempts.
	spareWait  = time.Minute
	sparePause = 20 * time.Millisecond
)

// spareFS is a file system that can open files even while the process, or the machine, has no descriptor left. It
// holds some in reserve, and releases one for each file that could not be opened otherwise.
//
// A lack of descriptors is temporary, but the database would take it for a broken disk. Writes and syncs need no
// descriptor; their errors pass unchanged.
type spareFS struct {
	vfs.FS
	reserve *descriptorReserve
}

// newSpareFS returns files with a reserve of descriptors. The caller closes the reserve after the last use.
func newSpareFS(files vfs.FS, stop <-chan struct{}) spareFS {
	s := &descriptorReserve{stop: stop, open: func() (io.Closer, error) { return os.Open(os.DevNull) }}
	s.fill()
	return spareFS{files, s}
}

// descriptorReserve is the set of open descriptors in reserve.
type descriptorReserve struct {
	open func() (io.Closer, error)
	stop <-chan struct{} // when closed, withDescriptor stops waiting

	mu     sync.Mutex
	held   []io.Closer
	closed bool
}

// lacksDescriptor reports whether err means that the process (EMFILE) or the machine (ENFILE) has no descriptor left.
func lacksDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// fill opens descriptors until the reserve is full or none can be opened.
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

// releaseOne closes one descriptor of the reserve, so that the process can open another file.
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

// withDescriptor calls open until it fails for another reason than a lack of descriptors, or succeeds, or spareWait
// is over. Each call refills the reserve afterwards, so it is full soon after descriptors are available again.
func withDescriptor[T any](s *descriptorReserve, open func() (T, error)) (T, error) {
	defer s.fill()
	v, err := open()
	if err == nil || !lacksDescriptor(err) {
		return v, err
	}
	for limit := time.Now().Add(spareWait); lacksDescriptor(err) && time.Now().Before(limit); {
		// Another goroutine may take the released descriptor first, so several may be needed.
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

// ReuseForWrite is part of vfs.FS. It renames the file before it opens it, so a retry may find the file renamed
// already.
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

// RemoveAll is part of vfs.FS. It opens the directories that it empties.
func (f spareFS) RemoveAll(name string) error {
	_, err := withDescriptor(f.reserve, func() (struct{}, error) { return struct{}{}, f.FS.RemoveAll(name) })
	return err
}

// Unwrap is part of vfs.FS.
func (f spareFS) Unwrap() vfs.FS { return f.FS }
