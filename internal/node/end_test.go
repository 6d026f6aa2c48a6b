package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// inOwnProcess runs a test's body in a process of its own, because goroutines of the database on a broken disk never
// end. The body returns an error if the test fails.
func inOwnProcess(t *testing.T, body func() error) {
	t.Helper()
	const variable = "REPLICA_TEST_OWN_PROCESS"
	if os.Getenv(variable) == t.Name() {
		if err := body(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("all is as it should be")
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all is as it should be") {
		t.Errorf("%v\n%s", err, out)
	}
}

// breakable returns a disk on which affected operations fail once broken is set.
func breakable(broken *atomic.Bool, affected func(errorfs.Op) bool) vfs.FS {
	return errorfs.Wrap(vfs.NewCrashableMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && affected(op) {
			return errors.New("no space left on device")
		}
		return nil
	}))
}

func awaitEnd(n *Node) error {
	select {
	case <-n.Done():
	case <-time.After(30 * time.Second):
		return errors.New("the member goes on")
	}
	if err := n.Err(); err == nil || !strings.HasPrefix(err.Error(), "data directory data: the disk failed") || strings.Contains(err.Error(), "\n") {
		return fmt.Errorf("it says: %v", err)
	}
	if err := n.Serving(); !errors.Is(err, ErrStopped) {
		return fmt.Errorf("it still serves: %v", err)
	}
	return nil
}

// A member that was removed ends by itself. Stop, if it comes in between, has nobody to announce its end to.
func TestStopDuringARemovalDoesNotWait(t *testing.T) {
	n, err := Start(t.Context(), Config{Dir: t.TempDir(), Cluster: &ClusterConfig{
		Self: 11, Members: []uint64{11, 12, 13}, ClusterID: 0xc1, Transport: switchboardLink{&switchboard{nodes: map[uint64]*Node{}}, 11},
		ElectionTimeout: time.Minute, // Stop waits for two
	}})
	if err != nil {
		t.Fatal(err)
	}
	before := n.nextID.Load()
	n.owner.Lock()
	n.broken = &replica.RemovedError{Member: 11}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop(ctx) }()
	for n.nextID.Load() == before && ctx.Err() == nil {
		runtime.Gosched()
	}
	n.owner.Unlock()
	removed := (*replica.RemovedError)(nil)
	if err := <-stopped; !errors.As(err, &removed) {
		t.Errorf("it stops with %v", err)
	}
}

// A member that was removed closes its database while clients read: keys, transactions and the history for watchers. Each
// of these reads succeeds, or is refused because the member has stopped.
func TestReadersOutliveTheRemovalOfTheirMember(t *testing.T) {
	n, err := Start(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	const keys = 200 // more than the reads of history that are kept for other watchers
	for i := range keys {
		mustPut(t, n, "k", fmt.Sprint(i), 0)
	}
	ctx, key := context.Background(), []byte("k")
	begun := make(chan struct{}, 3)
	var readers sync.WaitGroup
	for what, read := range map[string]func(i int) error{
		"range": func(int) error {
			_, _, err := n.Range(ctx, keyspace.RangeRequest{Key: key}, true)
			return err
		},
		"transaction": func(int) error {
			_, _, err := n.Txn(ctx, keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.RangeRequest{Key: key}}}, true)
			return err
		},
		"watch": func(i int) error {
			stream := n.NewWatchStream(keyspace.StreamLimits{})
			defer stream.Close()
			if _, err := stream.Watch(keyspace.WatchRequest{Key: key, StartRevision: int64(2 + i%keys), PrevKV: true}); err != nil {
				return err
			}
			for {
				if resp, err := stream.Next(ctx); err != nil || len(resp.Events) > 0 {
					return err
				}
			}
		},
	} {
		readers.Go(func() {
			for i := 0; ; i++ {
				if err := read(i); err != nil {
					if !errors.Is(err, ErrStopped) {
						t.Errorf("%s: %v", what, err)
					}
					return
				}
				if i == 0 {
					begun <- struct{}{}
				}
				runtime.Gosched()
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	n.owner.Lock()
	n.broken = &replica.RemovedError{Member: 11}
	n.owner.Unlock()
	_, _, _ = n.Put(ctx, keyspace.PutRequest{Key: key}) // wakes the member, which finds that it was removed
	<-n.Done()
	removed := (*replica.RemovedError)(nil)
	if err := n.Err(); !errors.As(err, &removed) {
		t.Errorf("it has ended with %v", err)
	}
	readers.Wait()
}

// When the database cannot move data in the background, every write would wait forever, and with it every expiry. The
// member ends instead, even if one of its goroutines is stuck.
func TestMemberEndsWhenDiskFillsInBackground(t *testing.T) {
	inOwnProcess(t, func() error {
		var broken atomic.Bool
		files := breakable(&broken, func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") })
		n, err := Start(context.Background(), Config{Dir: "data", FS: files})
		if err != nil {
			return err
		}
		<-n.Ready()
		broken.Store(true)
		value := make([]byte, 1<<20)
		for i := 0; i < 1000 && err == nil; i++ {
			_, _, err = n.Put(context.Background(), keyspace.PutRequest{Key: fmt.Append(nil, i), Value: value})
		}
		if !errors.Is(err, replica.ErrUnknownOutcome) && !errors.Is(err, ErrStopped) {
			return fmt.Errorf("the last put: %v", err)
		}
		return awaitEnd(n)
	})
}

// A disk that fails while the directory is opened does not block Start forever.
func TestStartReturnsWhenDiskFails(t *testing.T) {
	inOwnProcess(t, func() error {
		var broken atomic.Bool
		broken.Store(true)
		files := breakable(&broken, func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "MANIFEST")
		})
		failed := make(chan error, 1)
		go func() {
			_, err := Start(context.Background(), Config{Dir: "data", FS: files})
			failed <- err
		}()
		select {
		case err := <-failed:
			if err == nil || !strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "\n") {
				return fmt.Errorf("it says: %v", err)
			}
			return nil
		case <-time.After(30 * time.Second):
			return errors.New("it never comes back")
		}
	})
}

// Acknowledged writes survive a power cut wherever the data directory is, from the first write on.
func TestNewDataDirectorySurvivesPowerCut(t *testing.T) {
	for _, dir := range []string{"data", "var/lib/leasekeeper"} {
		files := vfs.NewCrashableMem()
		n, err := Start(context.Background(), Config{Dir: dir, FS: files})
		if err != nil {
			t.Fatal(err)
		}
		before := mustPut(t, n, "k", "v", 0)
		again, err := Start(context.Background(), Config{Dir: dir, FS: files.CrashClone(vfs.CrashCloneCfg{})})
		if err != nil {
			t.Fatal(err)
		}
		<-again.Ready()
		if after := again.Header(); after.ClusterID != before.ClusterID || after.Revision != before.Revision {
			t.Errorf("%s: acknowledged %+v, after the cut %+v", dir, before, after)
		}
		for _, n := range []*Node{n, again} {
			if err := n.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
}

// While the disk does not answer, a submitted command has an unknown outcome and the member is not ready. When the
// disk answers again, the member serves.
func TestMemberWithStuckDiskIsNotReady(t *testing.T) {
	var slow atomic.Bool
	answer := make(chan struct{})
	files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if slow.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind != errorfs.OpFileWrite {
			<-answer
		}
		return nil
	}))
	n, err := Start(context.Background(), Config{Dir: "data", FS: files})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	slow.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, _, err = n.Put(ctx, keyspace.PutRequest{Key: []byte("k")})
	if !errors.Is(err, replica.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put: %v", err)
	}
	for n.Serving() != errStuck || n.CheckReady() != errStuck { // looks faster than watchDisk does
		n.disk.look()
		time.Sleep(time.Millisecond)
	}
	slow.Store(false)
	close(answer)
	mustPut(t, n, "l", "v", 0)
	n.disk.look()
	if err := errors.Join(n.Serving(), n.CheckReady()); err != nil {
		t.Errorf("serving: %v", err)
	}
	if kvs := get(t, n, "k"); len(kvs) != 1 {
		t.Errorf("the put whose outcome was unknown is not there, though a later one is: %v", kvs)
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}
