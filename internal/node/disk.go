package node

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// diskLook is the time between two looks at what the disk is doing, and stuckLooks is how many of them must find one
	// write or sync under way before the disk counts as stuck.
	diskLook   = 500 * time.Millisecond
	stuckLooks = 10
)

// diskWatch tells a disk that does not answer from a process that is busy. It reads no clock: it counts looks that find
// the same operation under way. A process that gets no processor looks as seldom as it goes on with what the disk has
// done, so its operations end between two looks. The zero value is ready, and safe for concurrent use.
type diskWatch struct {
	// underWay counts the operations that began in an even epoch, and those of an odd one.
	underWay [2]atomic.Int64
	// epoch is raised by a look that finds no operation of the epoch before under way.
	epoch atomic.Uint64
	// found is how many looks in a row have found one.
	found atomic.Int64
}

// begin counts an operation until end, which takes what begin returned.
func (w *diskWatch) begin() (parity uint64) {
	parity = w.epoch.Load() & 1
	w.underWay[parity].Add(1)
	return parity
}

func (w *diskWatch) end(parity uint64) { w.underWay[parity].Add(-1) }

// look is called at intervals of diskLook.
func (w *diskWatch) look() {
	epoch := w.epoch.Load()
	if w.underWay[(epoch+1)&1].Load() > 0 {
		w.found.Add(1)
		return
	}
	w.found.Store(0)
	w.epoch.CompareAndSwap(epoch, epoch+1)
}

// stuck reports whether an operation has been under way for stuckLooks looks.
func (w *diskWatch) stuck() bool { return w.found.Load() >= stuckLooks }

// watchDisk looks until the member has ended.
func (n *Node) watchDisk() {
	ticker := time.NewTicker(diskLook)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.disk.look()
		case <-n.done:
			return
		}
	}
}

// watchedFS is the file system of a database, with the operations counted that the database waits for.
type watchedFS struct {
	vfs.FS
	watch *diskWatch
}

// during has something counted while it is done.
func during[T any](w *diskWatch, do func() (T, error)) (T, error) {
	defer w.end(w.begin())
	return do()
}

// watched counts what is done with a file that was opened.
func (f watchedFS) watched(open func() (vfs.File, error)) (vfs.File, error) {
	file, err := during(f.watch, open)
	if err != nil {
		return nil, err
	}
	return watchedFile{file, f.watch}, nil
}

// Create is part of vfs.FS, as are the methods below.
func (f watchedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.Create(name, category) })
}

// Open opens a file to be read.
func (f watchedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

// OpenReadWrite opens a file that is there, or makes one.
func (f watchedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

// OpenDir opens a folder to be synced.
func (f watchedFS) OpenDir(name string) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

// ReuseForWrite makes a file of one that is no longer needed.
func (f watchedFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.ReuseForWrite(old, name, category) })
}

// Unwrap is part of vfs.FS.
func (f watchedFS) Unwrap() vfs.FS { return f.FS }

// watchedFile is a file of a watchedFS.
type watchedFile struct {
	vfs.File
	watch *diskWatch
}

// Read is part of vfs.File, as are the methods below.
func (f watchedFile) Read(p []byte) (int, error) {
	defer f.watch.end(f.watch.begin())
	return f.File.Read(p)
}

func (f watchedFile) ReadAt(p []byte, offset int64) (int, error) {
	defer f.watch.end(f.watch.begin())
	return f.File.ReadAt(p, offset)
}

func (f watchedFile) Write(p []byte) (int, error) {
	defer f.watch.end(f.watch.begin())
	return f.File.Write(p)
}

func (f watchedFile) WriteAt(p []byte, offset int64) (int, error) {
	defer f.watch.end(f.watch.begin())
	return f.File.WriteAt(p, offset)
}

func (f watchedFile) Preallocate(offset, length int64) error {
	defer f.watch.end(f.watch.begin())
	return f.File.Preallocate(offset, length)
}

func (f watchedFile) Sync() error {
	defer f.watch.end(f.watch.begin())
	return f.File.Sync()
}

func (f watchedFile) SyncData() error {
	defer f.watch.end(f.watch.begin())
	return f.File.SyncData()
}

func (f watchedFile) SyncTo(length int64) (bool, error) {
	defer f.watch.end(f.watch.begin())
	return f.File.SyncTo(length)
}
