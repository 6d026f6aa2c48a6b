package node

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// diskLook is the time between two looks at the disk's operations. The disk counts as stuck once stuckLooks looks
	// in a row find the same operation under way.
	diskLook   = 500 * time.Millisecond
	stuckLooks = 10
)

// diskWatch distinguishes a disk that does not answer from a process that is busy. It reads no clock: it counts looks
// that find the same operation under way. A process without processor time looks as rarely as it finishes operations,
// so it does not count as stuck. The zero value is ready, and safe for concurrent use.
type diskWatch struct {
	// underWay counts the operations that began in even epochs, and those that began in odd ones.
	underWay [2]atomic.Int64
	// epoch increases when a look finds no operation of the previous epoch under way.
	epoch atomic.Uint64
	// found is the number of consecutive looks that found one.
	found atomic.Int64
}

// begin counts an operation as under way until end, which takes the parity that begin returned.
func (w *diskWatch) begin() (parity uint64) {
	parity = w.epoch.Load() & 1
	w.underWay[parity].Add(1)
	return parity
}

func (w *diskWatch) end(parity uint64) { w.underWay[parity].Add(-1) }

// look checks for stuck operations. The caller calls it every diskLook.
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

// watchDisk calls look until the member has ended.
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

// watchedFS is a database's file system that counts the operations for which the database waits.
type watchedFS struct {
	vfs.FS
	watch *diskWatch
}

// during counts an operation while do runs.
func during[T any](w *diskWatch, do func() (T, error)) (T, error) {
	defer w.end(w.begin())
	return do()
}

// watched opens a file whose operations are counted.
func (f watchedFS) watched(open func() (vfs.File, error)) (vfs.File, error) {
	file, err := during(f.watch, open)
	if err != nil {
		return nil, err
	}
	return watchedFile{file, f.watch}, nil
}

// Create creates a file. Like the methods below it is part of vfs.FS.
func (f watchedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.Create(name, category) })
}

// Open opens a file for reading.
func (f watchedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

// OpenReadWrite opens a file, or creates it.
func (f watchedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.OpenReadWrite(name, category, opts...) })
}

// OpenDir opens a directory, for a sync.
func (f watchedFS) OpenDir(name string) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

// ReuseForWrite makes a new file from one that is no longer needed.
func (f watchedFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.watched(func() (vfs.File, error) { return f.FS.ReuseForWrite(old, name, category) })
}

// Unwrap returns the file system below.
func (f watchedFS) Unwrap() vfs.FS { return f.FS }

// watchedFile is a file of a watchedFS. Its methods are part of vfs.File.
type watchedFile struct {
	vfs.File
	watch *diskWatch
}

// Read reads and counts the operation.
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
