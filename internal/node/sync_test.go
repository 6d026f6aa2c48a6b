package node

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// slowDisk delays each sync, so that code that does not wait for a sync fails the test.
type slowDisk struct {
	vfs.FS
	slow *atomic.Bool
}

type slowFile struct {
	vfs.File
	slow *atomic.Bool
}

func (d slowDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return slowFile{f, d.slow}, nil
}

func (d slowDisk) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(old, name, category)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return slowFile{f, d.slow}, nil
}

func (f slowFile) wait() {
	if f.slow.Load() {
		time.Sleep(20 * time.Millisecond)
	}
}

func (f slowFile) Sync() error     { f.wait(); return f.File.Sync() }
func (f slowFile) SyncData() error { f.wait(); return f.File.SyncData() }
func (f slowFile) SyncTo(length int64) (bool, error) {
	f.wait()
	return f.File.SyncTo(length)
}

// The node answers a write only after the disk has synced it: a power cut at that very moment loses nothing.
func TestWriteIsAnsweredAfterSync(t *testing.T) {
	disk, slow := vfs.NewCrashableMem(), new(atomic.Bool)
	n, err := Start(context.Background(), Config{Dir: "data", FS: slowDisk{disk, slow}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	select {
	case <-n.Ready():
	case <-ctx.Done():
		t.Fatal("the member never serves: a write to its log is not synced, or its sync is not reported")
	}
	slow.Store(true)
	var writers sync.WaitGroup
	for _, key := range []string{"a", "b", "c"} {
		writers.Go(func() {
			for i := range 5 {
				value := []byte(strings.Repeat(key, i+10))
				if _, _, err := n.Put(ctx, keyspace.PutRequest{Key: []byte(key), Value: value}); err != nil {
					t.Errorf("put: %v; a write whose sync never ends shows as this", err)
					return
				}
				if !inLogs(t, disk.CrashClone(vfs.CrashCloneCfg{}), value) {
					t.Errorf("the put of %s was acknowledged before it was synced", value)
				}
			}
		})
	}
	writers.Wait()
	slow.Store(false)
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// inLogs reports whether a write-ahead log of the database contains value.
func inLogs(t *testing.T, files vfs.FS, value []byte) bool {
	t.Helper()
	found := false
	var walk func(dir string) error
	walk = func(dir string) error {
		names, err := files.List(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			path := files.PathJoin(dir, name)
			info, err := files.Stat(path)
			if err != nil {
				return err
			}
			if info.IsDir() {
				err = walk(path)
			} else if strings.HasSuffix(name, ".log") {
				err = errors.Join(err, func() error {
					f, err := files.Open(path)
					if err != nil {
						return err
					}
					defer f.Close()
					all := make([]byte, info.Size())
					if _, err := f.ReadAt(all, 0); err != nil {
						return err
					}
					found = found || bytes.Contains(all, value)
					return nil
				}())
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk("data"); err != nil {
		t.Error(err)
	}
	return found
}
