package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func hashOf(t *testing.T, n *Node, revision int64) keyspace.HashResult {
	t.Helper()
	_, got, err := n.HashKeys(context.Background(), revision)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// noise returns text that cannot be compressed.
func noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return string(b)
}

// The hash of a revision stays the same after restarts, sweeps and a defragmentation, while others write.
func TestHashOfRevisionIsStable(t *testing.T) {
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	<-n.Ready()
	ctx := context.Background()
	if _, _, err := n.Grant(ctx, 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		mustPut(t, n, fmt.Sprint("k", i), "v", 1)
	}
	h, err := n.Revoke(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	before := hashOf(t, n, h.Revision)
	mustPut(t, n, "more", "v", 0)
	if err := n.Defragment(ctx); err != nil {
		t.Fatal(err)
	}
	if after := hashOf(t, n, h.Revision); after.Hash != before.Hash || after.Revision != h.Revision || after.Current != h.Revision+1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if now := hashOf(t, n, 0); now.Hash == before.Hash || now.Revision != h.Revision+1 {
		t.Errorf("before %+v, after another put %+v", before, now)
	}
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.HashKeys(ctx, 0); !errors.Is(err, ErrStopped) {
		t.Errorf("hash of a stopped member: %v", err)
	}
	if err := n.Defragment(ctx); !errors.Is(err, ErrStopped) {
		t.Errorf("defragmenting a stopped member: %v", err)
	}
	if after := hashOf(t, startNode(t, dir), h.Revision); after.Hash != before.Hash {
		t.Errorf("before %+v, after the restart %+v", before, after)
	}
}

// A defragmentation that would use up the reserve is refused, and one ends with its context.
func TestDefragmentKeepsSpaceReserve(t *testing.T) {
	n, err := Start(context.Background(), Config{
		Dir: t.TempDir(), Space: replica.SpaceLimits{MinFree: 1000}, FreeBytes: func(string) (uint64, error) { return 1001, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	<-n.Ready()
	mustPut(t, n, "k", noise(1000), 0)
	if err := n.Defragment(context.Background()); !errors.Is(err, replica.ErrNoSpace) {
		t.Errorf("with 1001 free bytes: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.Defragment(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

func takeSnapshot(t *testing.T, n *Node) []byte {
	t.Helper()
	s, err := n.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	written, err := s.WriteTo(&b)
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if written != int64(b.Len()) || written != s.Size() || written%512 != sha256.Size {
		t.Errorf("wrote %d bytes, %d arrived, the size is %d", written, b.Len(), s.Size())
	}
	return b.Bytes()
}

// restoring are options of a restore at the present second, without a hold-off.
func restoring() RestoreOptions { return RestoreOptions{Now: time.Now()} }

func mustRestore(t *testing.T, snapshot []byte, dir string) Restored {
	t.Helper()
	return mustRestoreWith(t, snapshot, dir, restoring())
}

func mustRestoreWith(t *testing.T, snapshot []byte, dir string, o RestoreOptions) Restored {
	t.Helper()
	got, err := Restore(context.Background(), vfs.Default, bytes.NewReader(snapshot), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A restored server has the snapshot's data. It is a new cluster, and its revisions are higher than all that the old
// one gave out.
func TestRestoreKeepsDataInNewCluster(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	ctx := context.Background()
	if _, _, err := n.Grant(ctx, 7, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Grant(ctx, 8, time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		mustPut(t, n, fmt.Sprint("gone", i), "v", 8)
	}
	h := mustPut(t, n, "kept", noise(3<<20/2-100), 7)
	if _, err := n.Revoke(ctx, 8); err != nil { // most likely its keys are not swept yet
		t.Fatal(err)
	}
	snapshot := takeSnapshot(t, n)
	was := n.Header()
	lost := mustPut(t, n, "lost", "v", 0)
	if left, err := filepath.Glob(filepath.Join(dir, datadir.SnapshotPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	into := filepath.Join(t.TempDir(), "new")
	now := time.Now()
	restored := mustRestoreWith(t, snapshot, into, RestoreOptions{Now: now})
	m := startNode(t, into)
	is := m.Header()
	if is.ClusterID == was.ClusterID || is.MemberID == was.MemberID || is.ClusterID != restored.ClusterID || is.MemberID != restored.MemberID {
		t.Errorf("was %+v, is %+v, restored %+v", was, is, restored)
	}
	if restored.Was != was.Revision || restored.Revision != now.Unix()<<20 || is.Revision < restored.Revision {
		t.Errorf("was %+v, is %+v, restored %+v", was, is, restored)
	}
	if _, all, err := m.Range(ctx, keyspace.RangeRequest{Key: []byte{0}, End: []byte{0}}, false); err != nil || len(all.KVs) != 1 ||
		string(all.KVs[0].Key) != "kept" || all.KVs[0].ModRevision != h.Revision || all.KVs[0].Lease != 7 {
		t.Errorf("after the restore: %d keys, %v", all.Count, err)
	}
	if _, status, err := m.TimeToLive(ctx, 7, true); err != nil || status.Granted != time.Hour || !slices.Equal(status.Items, []lessor.Item{{Key: "kept"}}) {
		t.Errorf("lease after the restore: %+v, %v", status, err)
	}
	if _, _, err := m.Range(ctx, keyspace.RangeRequest{Key: []byte("kept"), Revision: lost.Revision}, false); !errors.Is(err, keyspace.ErrCompacted) {
		t.Errorf("reading at a revision that was skipped: %v", err)
	}
	if next := mustPut(t, m, "kept", "v2", 0); next.Revision <= restored.Revision || next.Revision <= lost.Revision {
		t.Errorf("the next revision is %d", next.Revision)
	}
	// Restoring the same snapshot twice makes two clusters.
	if again := mustRestore(t, snapshot, filepath.Join(t.TempDir(), "again")); again.ClusterID == restored.ClusterID {
		t.Errorf("both are cluster %x", again.ClusterID)
	}
}

// tokens claims and releases names at a member, and returns the tokens.
func tokens(t *testing.T, n *Node, count int) (issued []int64) {
	t.Helper()
	ctx := context.Background()
	for i := range count {
		name, lease := fmt.Sprint("name", i%3), lessor.ID(rand.Int64N(1<<62))
		claimed, err := n.Claim(ctx, ownership.Claim{Name: name, Lease: lease, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		issued = append(issued, claimed.Token)
		if _, err := n.Release(ctx, name, lease); err != nil {
			t.Fatal(err)
		}
	}
	return issued
}

// Two clusters that are restored from one snapshot, and the cluster that it was taken from, issue no token twice. The
// restored ones issue higher tokens than the one before.
func TestSnapshotRestoredTwiceRepeatsNoToken(t *testing.T) {
	n := startNode(t, t.TempDir())
	tokens(t, n, 5)
	snapshot := takeSnapshot(t, n)
	issued := tokens(t, n, 50) // are not in the snapshot
	highest := slices.Max(issued)
	var clusters []uint64
	for i := range 2 {
		dir := filepath.Join(t.TempDir(), "new")
		restored := mustRestoreWith(t, snapshot, dir, RestoreOptions{Now: time.Now().Add(time.Duration(i) * time.Second)})
		clusters = append(clusters, restored.ClusterID, restored.MemberID)
		m := startNode(t, dir)
		if inc := m.incarnation; inc == n.incarnation {
			t.Errorf("the restored directory has the incarnation %x of the first", inc)
		}
		fresh := tokens(t, m, 50)
		if slices.Min(fresh) <= highest {
			t.Errorf("the token %d is not above %d", slices.Min(fresh), highest)
		}
		issued = append(issued, fresh...)
	}
	if slices.Sort(clusters); len(slices.Compact(clusters)) != 4 {
		t.Errorf("ids were repeated: %x", clusters)
	}
	slices.Sort(issued)
	if distinct := slices.Compact(slices.Clone(issued)); len(distinct) != len(issued) {
		t.Errorf("of %d tokens, %d were issued twice", len(issued), len(issued)-len(distinct))
	}
}

// Where the clock does not lead far enough above the snapshot's revision, a restore needs a revision that was never
// exceeded.
func TestRestoreNeedsRevisionFarAboveSnapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "first")
	now := time.Now()
	n := startNode(t, t.TempDir())
	mustPut(t, n, "k", "v", 0)
	first := mustRestoreWith(t, takeSnapshot(t, n), dir, RestoreOptions{Now: now})
	m := startNode(t, dir)
	mustPut(t, m, "k", "v2", 0)
	snapshot := takeSnapshot(t, m)
	found := m.Header().Revision
	for _, c := range []struct {
		what    string
		o       RestoreOptions
		want    int64 // 0: refused
		message string
	}{
		{"soon after another restore", RestoreOptions{Now: now.Add(1023 * time.Second)}, 0, "--revision-above"},
		{"long enough after", RestoreOptions{Now: now.Add(1026 * time.Second)}, (now.Unix() + 1026) << 20, ""},
		{"with a clock of long ago", RestoreOptions{Now: time.Unix(1, 0)}, 0, "--revision-above"},
		{"with no clock", RestoreOptions{}, 0, "--revision-above"},
		{"with a clock of far in the future", RestoreOptions{Now: time.Unix(1<<43, 0)}, 0, "--revision-above"},
		{"above what it has", RestoreOptions{Now: time.Unix(1, 0), RevisionAbove: found}, found + 1, ""},
		{"above less than it has", RestoreOptions{Now: now.Add(time.Hour), RevisionAbove: found - 1}, 0, "may have been issued"},
		{"above what the clock leads to", RestoreOptions{Now: now, RevisionAbove: first.Revision << 1}, first.Revision<<1 + 1, ""},
		{"above less than the clock leads to", RestoreOptions{Now: now.Add(time.Hour), RevisionAbove: found}, (now.Unix() + 3600) << 20, ""},
		{"above more than there can be", RestoreOptions{Now: now, RevisionAbove: 1<<62 + 1}, 0, "below"},
	} {
		into := filepath.Join(t.TempDir(), "new")
		got, err := Restore(context.Background(), vfs.Default, bytes.NewReader(snapshot), into, c.o)
		if c.want == 0 {
			if !errors.As(err, new(*record.RevisionError)) || !strings.Contains(err.Error(), c.message) {
				t.Errorf("%s: %+v, %v", c.what, got, err)
			}
			if _, err := os.Stat(filepath.Join(into, datadir.VersionFile)); err == nil {
				t.Errorf("%s: there is a data directory", c.what)
			}
			continue
		}
		if err != nil || got.Revision != c.want || got.Was != found {
			t.Errorf("%s: %+v, %v; want revision %d", c.what, got, err, c.want)
		}
	}
}

// A restored member grants no name until its hold-off is over, also after a restart. Its leases have their full TTL.
func TestRestoredMemberIsHeldOff(t *testing.T) {
	n := startNode(t, t.TempDir())
	ctx := context.Background()
	for id, ttl := range map[lessor.ID]time.Duration{7: time.Hour, 8: time.Minute} {
		if _, _, err := n.Grant(ctx, id, ttl); err != nil {
			t.Fatal(err)
		}
	}
	snapshot := takeSnapshot(t, n)
	dir := filepath.Join(t.TempDir(), "new")
	if got := mustRestoreWith(t, snapshot, dir, RestoreOptions{Now: time.Now(), HoldOff: -1}); got.HoldOff != time.Hour || got.Leases != 2 {
		t.Errorf("%+v", got)
	}
	claim := ownership.Claim{Name: "n", Lease: 9, TTL: time.Minute}
	for range 2 {
		m, err := Start(ctx, Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		<-m.Ready()
		if _, err := m.Claim(ctx, claim); !errors.Is(err, replica.ErrHeldOff) {
			t.Errorf("a claim during the hold-off: %v", err)
		}
		if _, status, err := m.TimeToLive(ctx, 8, false); err != nil || status.Remaining < 50*time.Second {
			t.Errorf("%+v, %v", status, err)
		}
		mustPut(t, m, "plain", "v", 0)
		if err := m.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	marked := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, datadir.VersionFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if marked := marked(dir); !strings.Contains(marked, "version 3 in use") {
		t.Errorf("a program without hold-offs would take the directory: it is marked %q", marked)
	}
	without := filepath.Join(t.TempDir(), "without")
	mustRestoreWith(t, snapshot, without, RestoreOptions{Now: time.Now()})
	if marked := marked(without); strings.Contains(marked, "in use") {
		t.Errorf("a directory without a hold-off is marked %q", marked)
	}
	short := filepath.Join(t.TempDir(), "short")
	mustRestoreWith(t, snapshot, short, RestoreOptions{Now: time.Now(), HoldOff: time.Nanosecond})
	if _, err := startNode(t, short).Claim(ctx, claim); err != nil {
		t.Errorf("a claim after the hold-off: %v", err)
	}
}

// A snapshot made during writes is one state: it contains no write without all earlier ones.
func TestSnapshotDuringWritesIsConsistent(t *testing.T) {
	n := startNode(t, t.TempDir())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_, _, err := n.Put(context.Background(), keyspace.PutRequest{Key: []byte{byte('a' + i%2)}, Value: fmt.Append(nil, i)})
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 5 {
		time.Sleep(10 * time.Millisecond)
		acknowledged := n.Header().Revision
		dir := filepath.Join(t.TempDir(), "new")
		snapshot := takeSnapshot(t, n)
		mustRestore(t, snapshot, dir)
		m := startNode(t, dir)
		kvs := append(get(t, m, "a"), get(t, m, "b")...)
		if len(kvs) != 2 || kvs[0].Version-kvs[1].Version > 1 || kvs[1].Version > kvs[0].Version {
			t.Errorf("the keys are %+v", kvs)
		}
		if got := kvs[0].Version + kvs[1].Version + 1; got < acknowledged {
			t.Errorf("revision %d was acknowledged, the snapshot has %d", acknowledged, got)
		}
	}
	close(stop)
	<-stopped
}

// Restore refuses input that is no snapshot, is incomplete or is damaged, and a directory in use.
func TestInvalidSnapshotIsNotRestored(t *testing.T) {
	n := startNode(t, t.TempDir())
	mustPut(t, n, "k", "v", 0)
	snapshot := takeSnapshot(t, n)
	damaged := slices.Clone(snapshot)
	damaged[len(damaged)/2] ^= 1
	foreign := append(make([]byte, 1024), make([]byte, sha256.Size)...)
	sum := sha256.Sum256(foreign[:1024])
	copy(foreign[1024:], sum[:])
	full := t.TempDir()
	write(t, filepath.Join(full, "holiday.jpg"), "sun")
	for _, c := range []struct {
		name     string
		snapshot []byte
		dir      string
		want     string
	}{
		{"cut off", snapshot[:len(snapshot)-512], "", "damaged"},
		{"without checksum", snapshot[:len(snapshot)-sha256.Size], "", "not a snapshot"},
		{"damaged", damaged, "", "damaged"},
		{"of another program", foreign, "", "not a snapshot of leasekeeper"},
		{"empty", nil, "", "not a snapshot"},
		{"into a directory in use", snapshot, full, "is not empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := c.dir
			if dir == "" {
				dir = filepath.Join(t.TempDir(), "new")
			}
			_, err := Restore(context.Background(), vfs.Default, bytes.NewReader(c.snapshot), dir, restoring())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, datadir.VersionFile)); err == nil {
				t.Error("there is a data directory")
			}
		})
	}
}

// Start removes the parts of a snapshot that a killed server left.
func TestStartRemovesUnfinishedSnapshots(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	s, err := n.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	left := killed(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	startNode(t, left)
	if names, err := filepath.Glob(filepath.Join(left, datadir.SnapshotPrefix+"*")); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}
