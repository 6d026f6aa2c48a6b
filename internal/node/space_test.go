package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func awaitShortage(t *testing.T, n *Node, want replica.Shortage) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); n.Shortage() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v, not %v", n.Shortage(), want)
		}
	}
}

// The member watches the free space: it refuses puts and grants in time, logs that once, and recovers.
func TestLowFreeSpaceRefusesPutsAndGrants(t *testing.T) {
	var free atomic.Uint64
	free.Store(100)
	var log lines
	n, err := Start(context.Background(), Config{
		Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil)), Space: replica.SpaceLimits{MinFree: 1000},
		FreeBytes: func(string) (uint64, error) { return free.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	<-n.Ready()
	ctx := context.Background()
	// The shortage holds from the first request on.
	if _, _, err := n.Put(ctx, keyspace.PutRequest{Key: []byte("k")}); !errors.Is(err, replica.ErrNoSpace) {
		t.Fatalf("put: %v", err)
	}
	if s, err := n.Status(ctx); err != nil || s.Shortage != replica.DiskFull || s.FreeBytes != 100 {
		t.Errorf("status %+v, %v", s, err)
	}
	free.Store(2000)
	awaitShortage(t, n, replica.Enough)
	if _, _, err := n.Grant(ctx, 5, 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	mustPut(t, n, "k", "v", 5)
	free.Store(10)
	awaitShortage(t, n, replica.DiskFull)
	if _, _, err := n.Grant(ctx, 0, time.Hour); !errors.Is(err, replica.ErrNoSpace) {
		t.Errorf("grant: %v", err)
	}
	if got := renew(t, n, 5); got[0].Err != nil {
		t.Errorf("renewed %+v", got)
	}
	for deadline := time.Now().Add(20 * time.Second); len(get(t, n, "k")) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lease does not end")
		}
	}
	if before, after, err := n.CheckSpace(ctx); before != replica.DiskFull || after != replica.DiskFull || err != nil {
		t.Errorf("checked: %v %v %v", before, after, err)
	}
	free.Store(1000) // not enough to recover without CheckSpace
	if before, after, err := n.CheckSpace(ctx); before != replica.DiskFull || after != replica.Enough || err != nil {
		t.Errorf("checked: %v %v %v", before, after, err)
	}
	mustPut(t, n, "k", "v", 0)
	if a, b := log.count("puts and grants are refused"), log.count("there is space again"); a != 2 || b != 2 {
		t.Errorf("%d lines of shortage and %d of recovery, want 2 each:\n%s", a, b, log.b.String())
	}
}

// At the quota the member refuses puts until data is deleted and compacted.
func TestQuotaRefusesPutsUntilCompaction(t *testing.T) {
	n, err := Start(context.Background(), Config{Dir: t.TempDir(), Space: replica.SpaceLimits{Quota: 8 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	<-n.Ready()
	value := make([]byte, 1<<18)
	for i := range value {
		value[i] = byte(rand.Uint32()) // cannot be compressed
	}
	put := func(i int) error {
		_, _, err := n.Put(context.Background(), keyspace.PutRequest{Key: fmt.Append(nil, i), Value: value})
		return err
	}
	i := 0
	for err = put(i); err == nil && i < 1000; err = put(i) {
		i++
		time.Sleep(20 * time.Millisecond)
	}
	if !errors.Is(err, replica.ErrNoSpace) || n.Shortage() != replica.QuotaExceeded {
		t.Fatalf("after %d quarters of a MiB: %v, %v", i, err, n.Shortage())
	}
	if _, _, err := n.DeleteRange(context.Background(), keyspace.DeleteRequest{Key: []byte{0}, End: []byte{0}}); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func TestMemberServesWhenFreeSpaceIsUnknown(t *testing.T) {
	n, err := Start(context.Background(), Config{
		Dir: t.TempDir(), Space: replica.SpaceLimits{MinFree: 1 << 60},
		FreeBytes: func(string) (uint64, error) { return 0, errors.New("not today") },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	<-n.Ready()
	mustPut(t, n, "k", "v", 0)
	if s, err := n.Status(context.Background()); err != nil || s.FreeBytes != -1 {
		t.Errorf("free bytes %d, %v", s.FreeBytes, err)
	}
}

// When a sync or a write fails, the member ends: it acknowledges nothing more and logs the cause. The test runs in a
// process of its own, because the database's goroutines never end after that.
func TestMemberHaltsWhenDiskFails(t *testing.T) {
	kinds := map[string][]errorfs.OpKind{
		"sync":  {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
		"write": {errorfs.OpFileWrite, errorfs.OpFileWriteAt},
	}
	const variable = "REPLICA_TEST_FAILING_DISK"
	if kind := os.Getenv(variable); kind != "" {
		failDisk(kinds[kind])
		return
	}
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestMemberHaltsWhenDiskFails$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), variable+"="+kind)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "all is as it should be") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// failDisk runs a member whose disk fails under load, checks it, and ends the process.
func failDisk(kinds []errorfs.OpKind) {
	fail := func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
		os.Exit(1)
	}
	var broken atomic.Bool
	injected := errorfs.InjectorFunc(func(op errorfs.Op) error {
		for _, kind := range kinds {
			if broken.Load() && op.Kind == kind && strings.HasSuffix(op.Path, ".log") {
				return errors.New("the disk is broken")
			}
		}
		return nil
	})
	mem := vfs.NewCrashableMem()
	n, err := Start(context.Background(), Config{Dir: "data", FS: errorfs.Wrap(mem, injected)})
	if err != nil {
		fail("start: %v", err)
	}
	<-n.Ready()
	var acknowledged [8]atomic.Int64 // the last acknowledged revision of each writer
	var wg sync.WaitGroup
	for c := range acknowledged {
		wg.Go(func() {
			for {
				h, _, err := n.Put(context.Background(), keyspace.PutRequest{Key: fmt.Append(nil, c)})
				if err != nil {
					if !errors.Is(err, replica.ErrUnknownOutcome) && !errors.Is(err, ErrStopped) {
						fail("put: %v", err)
					}
					return
				}
				acknowledged[c].Store(h.Revision)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	broken.Store(true)
	select {
	case <-n.Done():
	case <-time.After(20 * time.Second):
		fail("the member goes on")
	}
	wg.Wait()
	if err := n.Err(); err == nil || !strings.HasPrefix(err.Error(), "data directory data: the disk failed") ||
		strings.Contains(err.Error(), "\n") {
		fail("it says: %v", err)
	}
	if _, _, err := n.Grant(context.Background(), 0, time.Hour); !errors.Is(err, ErrStopped) {
		fail("a grant afterwards: %v", err)
	}
	if err := n.Renew(context.Background(), []lessor.ID{1}, func(replica.Header, []replica.RenewedLease) { fail("a renewal was answered") }); !errors.Is(err, ErrStopped) {
		fail("a renewal afterwards: %v", err)
	}
	// After a power cut the disk holds every acknowledged write.
	again, err := Start(context.Background(), Config{Dir: "data", FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	if err != nil {
		fail("start again: %v", err)
	}
	<-again.Ready()
	for c := range acknowledged {
		if got := again.Header().Revision; got < acknowledged[c].Load() {
			fail("revision %d was acknowledged and the disk has %d", acknowledged[c].Load(), got)
		}
	}
	fmt.Printf("all is as it should be: %v\n", n.Err())
	os.Exit(0)
}
