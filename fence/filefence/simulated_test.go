package filefence

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/fence"
)

// simulated is a disk in memory. After a power cut it has lost what was not synced. Its lists are the worst that
// [disk] allows: a name that was created or removed while the directory was read is missing.
type simulated struct {
	fs *vfs.MemFS
	// step runs before each step; nil for none. It may panic, as if the process were killed there.
	step func(what string)
}

func (d simulated) at(what, name string) {
	if d.step != nil {
		d.step(what + " " + path.Base(name))
	}
}

func (d simulated) mkdir(name string) error {
	d.at("mkdir", name)
	return d.fs.MkdirAll(name, 0o777)
}

func (d simulated) create(name string, _ fs.FileMode) (file, error) {
	d.at("create", name)
	if _, err := d.fs.Stat(name); err == nil {
		return nil, fs.ErrExist
	}
	f, err := d.fs.Create(name, vfs.WriteCategoryUnspecified)
	return simulatedFile{d, name, f}, err
}

func (d simulated) rename(from, to string) error {
	d.at("rename", from)
	return d.fs.Rename(from, to)
}

func (d simulated) remove(name string) error {
	d.at("remove", name)
	return d.fs.Remove(name)
}

func (d simulated) list(dir string) ([]string, error) {
	d.at("begin to list", dir)
	before, err := d.fs.List(dir)
	if err != nil {
		return nil, err
	}
	d.at("end to list", dir)
	after, err := d.fs.List(dir)
	return slices.DeleteFunc(before, func(name string) bool { return !slices.Contains(after, name) }), err
}

func (d simulated) syncDir(dir string) error {
	d.at("sync", dir)
	f, err := d.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type simulatedFile struct {
	disk simulated
	name string
	vfs.File
}

func (f simulatedFile) Write(p []byte) (int, error) {
	f.disk.at("write", f.name)
	return f.File.Write(p)
}

func (f simulatedFile) Sync() error {
	f.disk.at("sync", f.name)
	return f.File.Sync()
}

// newDisk returns a disk with an empty directory /d.
func newDisk(t testing.TB) *vfs.MemFS {
	t.Helper()
	m := vfs.NewCrashableMem()
	if err := m.MkdirAll("/d", 0o777); err != nil {
		t.Fatal(err)
	}
	d := simulated{fs: m}
	if err := errors.Join(d.syncDir("/d"), d.syncDir("/")); err != nil {
		t.Fatal(err)
	}
	return m
}

const where = "/d/data"

func dataOf(t fence.Token) []byte { return []byte(fmt.Sprint("written with ", t, " in full")) }

// landed returns the token in the file; 0 if there is no file.
func landed(m *vfs.MemFS) (fence.Token, error) {
	f, err := m.Open(where)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	token, _, _ := strings.Cut(strings.TrimPrefix(string(data), "written with "), " ")
	t, err := fence.ParseToken(token)
	if err != nil || string(data) != string(dataOf(t)) {
		return 0, fmt.Errorf("the file holds %q", data)
	}
	return t, nil
}

// writer writes the file step by step: each step of the disk waits until run lets it begin.
type writer struct {
	token fence.Token
	turn  chan struct{}
	done  chan error // receives the outcome of the write
	over  bool
	err   error
	steps int
}

// begin starts a writer that waits before its first step.
func begin(m *vfs.MemFS, t fence.Token) *writer {
	w := &writer{token: t, turn: make(chan struct{}), done: make(chan error)}
	d := simulated{m, func(string) {
		w.turn <- struct{}{} // the step before this one has ended
		<-w.turn             // and this one may begin
	}}
	go func() {
		w.done <- target{d, where}.write(t, dataOf(t), 0o666)
	}()
	<-w.turn
	return w
}

// run makes at most n steps, and calls look after each.
func (w *writer) run(n int, look func()) {
	for ; n > 0 && !w.over; n-- {
		w.turn <- struct{}{}
		select {
		case <-w.turn:
		case w.err = <-w.done:
			w.over = true
		}
		w.steps++
		look()
	}
}

const all = 1 << 30
