package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// inOwnProcess runs a test's body in a process of its own, because goroutines of the database that met a
// broken disk never end. The body returns what is wrong, or nil.
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

// breakable is a disk on which operations on some files fail once it is broken.
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
	if err := n.Err(); err == nil || !strings.HasPrefix(err.Error(), "data folder data: the disk failed") || strings.Contains(err.Error(), "\n") {
		return fmt.Errorf("it says: %v", err)
	}
	if err := n.Serving(); !errors.Is(err, ErrStopped) {
		return fmt.Errorf("it still serves: %v", err)
	}
	return nil
}

// When data cannot be moved in the background every write would wait for ever, and with them the ends of
// leases. The member ends instead, whichever of its goroutines is stuck.
func TestNodeEndsWhenTheDiskFillsInTheBackground(t *testing.T) {
	inOwnProcess(t, func() error {
		var broken atomic.Bool
		files := breakable(&broken, func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") })
		n, err := Start(context.Background(), NodeConfig{Dir: "data", FS: files})
		if err != nil {
			return err
		}
		<-n.Ready()
		broken.Store(true)
		value := make([]byte, 1<<20)
		for i := 0; i < 1000 && err == nil; i++ {
			_, _, err = n.Put(context.Background(), keyspace.PutRequest{Key: fmt.Append(nil, i), Value: value})
		}
		if !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrStopped) {
			return fmt.Errorf("the last put: %v", err)
		}
		return awaitEnd(n)
	})
}

// A disk that fails while the folder is opened does not keep Start for ever.
func TestStartEndsWhenTheDiskFails(t *testing.T) {
	inOwnProcess(t, func() error {
		var broken atomic.Bool
		broken.Store(true)
		files := breakable(&broken, func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, "MANIFEST")
		})
		failed := make(chan error, 1)
		go func() {
			_, err := Start(context.Background(), NodeConfig{Dir: "data", FS: files})
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

// What was acknowledged survives a power cut wherever the folder lies, from the first change on.
func TestNodeSurvivesAPowerCutInANewFolder(t *testing.T) {
	for _, dir := range []string{"data", "var/lib/leasekeeper"} {
		files := vfs.NewCrashableMem()
		n, err := Start(context.Background(), NodeConfig{Dir: dir, FS: files})
		if err != nil {
			t.Fatal(err)
		}
		before := mustPut(t, n, "k", "v", 0)
		again, err := Start(context.Background(), NodeConfig{Dir: dir, FS: files.CrashClone(vfs.CrashCloneCfg{})})
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

// While the disk does not answer, a command that was handed over has an unknown outcome, and the member
// does not pass for one that serves. When the disk answers again, so does the member.
func TestNodeOnADiskThatStandsStill(t *testing.T) {
	var slow atomic.Bool
	answer := make(chan struct{})
	files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if slow.Load() && strings.HasSuffix(op.Path, ".log") && op.Kind != errorfs.OpFileWrite {
			<-answer
		}
		return nil
	}))
	n, err := Start(context.Background(), NodeConfig{Dir: "data", FS: files})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	slow.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, _, err = n.Put(ctx, keyspace.PutRequest{Key: []byte("k")})
	if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put: %v", err)
	}
	for n.Serving() != errStuck || n.CheckReady() != errStuck { // sooner than by itself
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

// T3: an answer that rests on an authority which has ended by the time it leaves is not given. What was
// changed stays changed, so replies to commands rest on none.
func TestT3AnswersAreCheckedOnceMoreBeforeTheyLeave(t *testing.T) {
	over := clock.Now().Add(-time.Nanosecond)
	if got, ok := Authorized(ReadAt{ID: 1, Authority: over}, clock.Now).(Reply); !ok || got.Err != ErrNoLeader {
		t.Errorf("read: %+v", got)
	}
	renewed := Authorized(Renewed{Leases: []RenewedLease{{ID: 1, TTL: time.Second}}, Authority: over}, clock.Now).(Renewed)
	if renewed.Leases[0].TTL != 0 || renewed.Leases[0].Err != ErrNoLeader {
		t.Errorf("renewal: %+v", renewed.Leases)
	}
	if got := Authorized(Reply{ID: 1, Authority: over}, clock.Now).(Reply); got.Err != ErrNoLeader {
		t.Errorf("inspection: %+v", got)
	}
	if got := Authorized(Reply{ID: 1, Authority: forever}, clock.Now).(Reply); got.Err != nil {
		t.Errorf("command: %+v", got)
	}
	valid := clock.Now().Add(time.Hour)
	if _, ok := Authorized(ReadAt{ID: 1, Authority: valid}, clock.Now).(ReadAt); !ok {
		t.Error("a read that may be answered is not")
	}
}

// G3: that a lease is gone is said only after its end is applied. Until then a renewal waits, and the other
// ids of its message do not.
func TestG3GoneIsSaidOnlyWhenTheEndIsApplied(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.serve()
	w.do(1, Grant{1, time.Second})
	w.do(2, Grant{2, time.Hour})
	w.advance(999 * time.Millisecond)
	w.clock.Advance(2 * time.Millisecond)
	w.step(Tick{}) // the end of lease 1 is decided and on its way to the disk
	answered := func(effects []Effect) (all []RenewedLease) {
		for _, e := range effects {
			if r, ok := e.(Renewed); ok {
				all = append(all, r.Leases...)
			}
		}
		return all
	}
	if got := answered(w.step(Renewal{3, []lessor.ID{1, 2}})); len(got) != 1 || got[0].ID != 2 || got[0].Err != nil {
		t.Errorf("before the end is applied: %+v", got)
	}
	if got := answered(w.settle()); len(got) != 1 || got[0].ID != 1 || !errors.Is(got[0].Err, lessor.ErrNotFound) {
		t.Errorf("after: %+v", got)
	}
}
