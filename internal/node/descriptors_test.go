package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// withoutDescriptors returns a disk on which opening and creating files fails with the error of lack, unless that is
// nil.
func withoutDescriptors(lack func() error) vfs.FS {
	return errorfs.Wrap(vfs.NewCrashableMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpOpen, errorfs.OpOpenDir, errorfs.OpReuseForWrite:
			if err := lack(); err != nil {
				return &os.PathError{Op: "open", Path: op.Path, Err: err}
			}
		}
		return nil
	}))
}

// A member's database creates files while the process has no descriptor left at times.
func TestMemberWaitsForDescriptors(t *testing.T) {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE} {
		t.Run(lack.Error(), func(t *testing.T) {
			inOwnProcess(t, func() error {
				var lacking atomic.Int64
				fs := withoutDescriptors(func() error {
					if lacking.Add(-1) >= 0 {
						return lack
					}
					return nil
				})
				ctx := context.Background()
				n, err := Start(ctx, Config{Dir: "data", FS: fs})
				if err != nil {
					return err
				}
				for i := range 200 {
					if i%20 == 10 {
						lacking.Store(2 * spareDescriptors)
					}
					if _, _, err := n.Put(ctx, keyspace.PutRequest{Key: fmt.Append(nil, i), Value: make([]byte, 100<<10)}); err != nil {
						return fmt.Errorf("put %d: %w", i, err)
					}
				}
				if lacking.Load() > 0 {
					return errors.New("the database opened no file")
				}
				return n.Stop(ctx)
			})
		})
	}
}

// A write that fails with the error for a lack of descriptors fails for good, unlike an open.
func TestWriteErrorIsNeverTemporary(t *testing.T) {
	inOwnProcess(t, func() error {
		var broken atomic.Bool
		fs := errorfs.Wrap(vfs.NewCrashableMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) {
				return syscall.EMFILE
			}
			return nil
		}))
		n, err := Start(context.Background(), Config{Dir: "data", FS: fs})
		if err != nil {
			return err
		}
		<-n.Ready()
		broken.Store(true)
		go n.Put(context.Background(), keyspace.PutRequest{Key: []byte("k")})
		return awaitEnd(n)
	})
}

// The reserve releases descriptors until the process has enough to open a file.
func TestSpareDescriptorsAreReleasedWhenNoneAreLeft(t *testing.T) {
	free := 0
	s := &descriptorReserve{stop: make(chan struct{}), open: func() (io.Closer, error) { return countedCloser{&free}, nil }}
	s.fill()
	open := func() (int, error) {
		if free < 3 {
			return 0, &os.PathError{Op: "open", Err: syscall.EMFILE}
		}
		return free, nil
	}
	if got, err := withDescriptor(s, open); err != nil || got != 3 {
		t.Errorf("after %d reserve were given away: %v, want success after 3", got, err)
	}
	if len(s.held) != spareDescriptors {
		t.Errorf("%d reserve are held afterwards, want %d", len(s.held), spareDescriptors)
	}
	s.close()
	if free != spareDescriptors+3 || len(s.held) != 0 {
		t.Errorf("close leaves %d reserve open", len(s.held))
	}
}

// A released descriptor cannot be replaced while none is left. The next open that succeeds refills the reserve.
func TestDescriptorReserveIsRefilled(t *testing.T) {
	free, lack := 0, false
	s := &descriptorReserve{stop: make(chan struct{}), open: func() (io.Closer, error) {
		if lack {
			return nil, syscall.EMFILE
		}
		return countedCloser{&free}, nil
	}}
	s.fill()
	lack = true
	open := func() (int, error) {
		if lack && free == 0 {
			return 0, &os.PathError{Op: "open", Err: syscall.EMFILE}
		}
		return free, nil
	}
	if _, err := withDescriptor(s, open); err != nil || len(s.held) != spareDescriptors-1 {
		t.Fatalf("%d are held, %v; one was to be given away", len(s.held), err)
	}
	lack = false
	if _, err := withDescriptor(s, open); err != nil || len(s.held) != spareDescriptors {
		t.Errorf("%d are held after the want has ended, %v; want %d", len(s.held), err, spareDescriptors)
	}
}

// The reserve is empty, so opening a file waits until the member stops.
func TestWaitForDescriptorEndsWithMember(t *testing.T) {
	stop := make(chan struct{})
	s := &descriptorReserve{stop: stop, open: func() (io.Closer, error) { return nil, syscall.ENFILE }}
	time.AfterFunc(10*time.Millisecond, func() { close(stop) })
	_, err := withDescriptor(s, func() (int, error) { return 0, syscall.ENFILE })
	if !errors.Is(err, syscall.ENFILE) {
		t.Errorf("the wait ends with %v", err)
	}
}

// countedCloser counts how often it is closed.
type countedCloser struct{ closed *int }

func (c countedCloser) Close() error { *c.closed++; return nil }
