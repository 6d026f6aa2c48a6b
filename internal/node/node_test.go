package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startNode runs a member on the real disk and clocks until the test ends.
func startNode(t *testing.T, dir string) *Node {
	t.Helper()
	return startNodeWith(t, Config{Dir: dir})
}

func startNodeWith(t *testing.T, cfg Config) *Node {
	t.Helper()
	n, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	<-n.Ready()
	return n
}

func mustPut(t *testing.T, n *Node, key, value string, lease lessor.ID) replica.Header {
	t.Helper()
	h, _, err := n.Put(context.Background(), keyspace.PutRequest{Key: []byte(key), Value: []byte(value), Lease: int64(lease)})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func get(t *testing.T, n *Node, key string) []keyspace.KV {
	t.Helper()
	_, got, err := n.Range(context.Background(), keyspace.RangeRequest{Key: []byte(key)}, false)
	if err != nil {
		t.Fatal(err)
	}
	return got.KVs
}

func renew(t *testing.T, n *Node, ids ...lessor.ID) []replica.RenewedLease {
	t.Helper()
	answers := make(chan []replica.RenewedLease, len(ids))
	if err := n.Renew(context.Background(), ids, func(_ replica.Header, leases []replica.RenewedLease) { answers <- leases }); err != nil {
		t.Fatal(err)
	}
	var all []replica.RenewedLease
	for len(all) < len(ids) {
		all = append(all, <-answers...)
	}
	return all
}

// A lease expires in time on the real clocks, its keys are deleted, and a watcher is notified.
func TestExpiryDeletesKeysAndNotifiesWatchers(t *testing.T) {
	n := startNode(t, t.TempDir())
	ctx := context.Background()
	_, granted, err := n.Grant(ctx, 0, 200*time.Millisecond)
	if err != nil || granted.ID <= 0 || granted.TTL != 200*time.Millisecond {
		t.Fatalf("granted %+v, %v", granted, err)
	}
	stream := n.NewWatchStream(keyspace.StreamLimits{})
	defer stream.Close()
	if _, err := stream.Watch(keyspace.WatchRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	put := mustPut(t, n, "k", "v", granted.ID)
	sent := time.Now()
	if got := renew(t, n, granted.ID, 12345); got[0].Err != nil || got[0].TTL != 200*time.Millisecond || !errors.Is(got[1].Err, lessor.ErrNotFound) {
		t.Fatalf("renewed %+v", got)
	}
	var events []keyspace.Event
	for len(events) < 2 {
		resp, err := stream.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, resp.Events...)
	}
	if alive := time.Since(sent); alive < 200*time.Millisecond {
		t.Errorf("the lease of 200ms ended after %v", alive)
	}
	if events[0].Type != keyspace.EventPut || events[1].Type != keyspace.EventDelete || events[1].KV.ModRevision != put.Revision+1 {
		t.Errorf("events %+v", events)
	}
	if kvs := get(t, n, "k"); len(kvs) != 0 {
		t.Errorf("key of an ended lease is still there: %v", kvs)
	}
	if _, _, err := n.TimeToLive(ctx, granted.ID, true); !errors.Is(err, lessor.ErrNotFound) {
		t.Errorf("time to live of an ended lease: %v", err)
	}
}

// After a clean stop and a start, all acknowledged data is there, under the same identity.
func TestStateSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, _, err := n.Grant(ctx, -7, time.Hour); err != nil {
		t.Fatal(err)
	}
	before := mustPut(t, n, "a", "1", -7)
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(ctx); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	if _, _, err := n.Put(ctx, keyspace.PutRequest{Key: []byte("b")}); !errors.Is(err, ErrStopped) {
		t.Errorf("put after stop: %v", err)
	}
	again := startNode(t, dir)
	kvs := get(t, again, "a")
	if len(kvs) != 1 || string(kvs[0].Value) != "1" || kvs[0].ModRevision != before.Revision || kvs[0].Lease != -7 {
		t.Errorf("after the restart: %+v", kvs)
	}
	h := again.Header()
	if h.ClusterID != before.ClusterID || h.MemberID != before.MemberID || h.Term <= before.Term || h.Revision != before.Revision {
		t.Errorf("header before %+v, after %+v", before, h)
	}
	_, status, err := again.TimeToLive(ctx, -7, true)
	if err != nil || status.Granted != time.Hour || !slices.Equal(status.Items, []lessor.Item{{Key: "a"}}) {
		t.Errorf("lease after the restart: %+v, %v", status, err)
	}
}

// Concurrent callers all get their answers, and their commands share syncs.
func TestConcurrentWritesShareSyncs(t *testing.T) {
	n := startNode(t, t.TempDir())
	const callers, each = 32, 20
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%d/%d", c, i)
				mustPut(t, n, key, key, 0)
				if kvs := get(t, n, key); len(kvs) != 1 || string(kvs[0].Value) != key {
					t.Errorf("read %v right after writing %s", kvs, key)
				}
			}
		})
	}
	wg.Wait()
	status, err := n.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if status.Applied != callers*each || status.Header.Revision != 1+callers*each {
		t.Errorf("status %+v", status)
	}
	if status.Syncs >= callers*each {
		t.Errorf("%d commands took %d syncs: nothing was gathered", callers*each, status.Syncs)
	}
}

// A call whose context ends reports a definite error if the request was not submitted, and an unknown outcome
// otherwise.
func TestUnknownOutcomeIsReported(t *testing.T) {
	n := startNode(t, t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := n.Put(ctx, keyspace.PutRequest{Key: []byte("k")}); !errors.Is(err, context.Canceled) || errors.Is(err, replica.ErrUnknownOutcome) {
		t.Errorf("put with an ended context: %v", err)
	}
	err := &unknownOutcome{context.DeadlineExceeded}
	if !errors.Is(err, replica.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not say both what happened and why", err)
	}
	if readError(err) != context.DeadlineExceeded {
		t.Errorf("a read has no outcome to be unknown")
	}
}

func TestTooLargeRequestIsRefused(t *testing.T) {
	n := startNode(t, t.TempDir())
	big := make([]byte, replica.DefaultMaxRequestBytes)
	if _, _, err := n.Put(context.Background(), keyspace.PutRequest{Key: []byte("k"), Value: big}); !errors.Is(err, replica.ErrTooLarge) {
		t.Errorf("put of %d bytes: %v", len(big), err)
	}
	if h := mustPut(t, n, "k", string(big[1:]), 0); h.Revision != 2 {
		t.Errorf("revision %d after one put that was just small enough", h.Revision)
	}
}

// The error about an unusable data directory is one line that says how to fix it.
func TestUnusableDataDirectoryIsRefused(t *testing.T) {
	used := t.TempDir()
	startNode(t, used)
	foreign := t.TempDir()
	write(t, filepath.Join(foreign, "holiday.jpg"), "sun")
	newer := t.TempDir()
	write(t, filepath.Join(newer, datadir.VersionFile), "leasekeeper data format 99\n")
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for _, c := range []struct{ name, dir, want string }{
		{"used by another", used, "is in use by another process"},
		{"of another program", foreign, "is not a data directory of leasekeeper"},
		{"of an unknown version", newer, "use the version of leasekeeper that wrote it"},
		{"a file", file, "the data directory cannot be made"},
		{"no name", "", "say where to keep the data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Start(context.Background(), Config{Dir: c.dir})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// killed returns a copy of a running member's data directory, as kill -9 would leave it. Because the database may
// change files during the copy, a copy only counts if the directory was the same before and after.
func killed(t *testing.T, dir string) string {
	t.Helper()
	for range 100 {
		before := listing(t, dir)
		left := t.TempDir()
		err := os.CopyFS(left, os.DirFS(dir))
		if before == listing(t, dir) {
			if err != nil {
				t.Fatal(err)
			}
			return left
		}
	}
	t.Fatal("the directory never stayed the same for as long as a copy takes")
	return ""
}

// listing returns all files below a directory, with their sizes and times.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			fmt.Fprintln(&list, path, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // removed during the listing: differs from every other listing
		return fmt.Sprint(time.Now(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, datadir.DatabaseDir, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return paths
}

// flip changes one bit of a file.
func flip(t *testing.T, path string, offset int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[offset] ^= 0x40
	write(t, path, string(text))
}

func mustFindDamage(t *testing.T, dir string) {
	t.Helper()
	n, err := Start(context.Background(), Config{Dir: dir})
	if err == nil {
		t.Errorf("damaged data was taken for a state at revision %d", n.Header().Revision)
		n.Stop(context.Background())
		return
	}
	if !strings.Contains(err.Error(), "restore the data directory from a copy") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// Start detects a changed bit in synced data, and never takes the data for an earlier state. Only in the last synced
// write can it not be distinguished from a write that a crash cut off.
func TestDamagedLogIsDetectedAtStart(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	for i := range 200 {
		mustPut(t, n, fmt.Sprint(i), strings.Repeat("v", 100), 0)
	}
	left := killed(t, dir)
	log := glob(t, left, "*.log")[0]
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	used := len(strings.TrimRight(string(text), "\x00"))
	const last = 2000 // upper bound of the last put's bytes in the log
	if used < 2*walBlock {
		t.Fatalf("the log has only %d bytes", used)
	}
	for offset := 100; offset < used-last; offset += 3000 {
		damaged := t.TempDir()
		if err := os.CopyFS(damaged, os.DirFS(left)); err != nil {
			t.Fatal(err)
		}
		flip(t, filepath.Join(damaged, datadir.DatabaseDir, filepath.Base(log)), offset)
		mustFindDamage(t, damaged)
	}
}

// After a clean stop, a changed bit is detected anywhere.
func TestAnyDamageAfterCleanStopIsDetected(t *testing.T) {
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, n, "k", strings.Repeat("v", 100), 0)
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, path := range glob(t, dir, "*.sst") {
		flip(t, path, 50)
	}
	mustFindDamage(t, dir)
}

// A copy of a running member's data directory contains all acknowledged data.
func TestKilledMemberLosesNothing(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	if _, _, err := n.Grant(context.Background(), 5, time.Hour); err != nil {
		t.Fatal(err)
	}
	h := mustPut(t, n, "k", "v", 5)
	again := startNode(t, killed(t, dir))
	if kvs := get(t, again, "k"); len(kvs) != 1 || kvs[0].ModRevision != h.Revision || kvs[0].Lease != 5 {
		t.Errorf("after the kill: %+v", kvs)
	}
}

// A value larger than the database's table in memory takes another path into the database, and is stored as well.
func TestValueLargerThanMemTableIsStored(t *testing.T) {
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{Dir: dir, MaxRequestBytes: 4 * (4 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	big := strings.Repeat("v", 2*(4<<20))
	mustPut(t, n, "k", big, 0)
	mustPut(t, n, "after", "v", 0)
	left := killed(t, dir)
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, left} {
		again := startNode(t, dir)
		if kvs := get(t, again, "k"); len(kvs) != 1 || string(kvs[0].Value) != big {
			t.Errorf("%d keys, and not what was put", len(kvs))
		}
		if kvs := get(t, again, "after"); len(kvs) != 1 {
			t.Errorf("%d keys, and not what was put after it", len(kvs))
		}
	}
}
