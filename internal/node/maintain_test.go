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
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func hashOf(t *testing.T, n *Node, revision int64) keyspace.HashResult {
	t.Helper()
	_, got, err := n.Hash(context.Background(), revision)
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
	if _, _, err := n.Hash(ctx, 0); !errors.Is(err, ErrStopped) {
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

func mustRestore(t *testing.T, snapshot []byte, dir string) Restored {
	t.Helper()
	got, err := Restore(context.Background(), vfs.Default, bytes.NewReader(snapshot), dir)
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
	restored := mustRestore(t, snapshot, into)
	m := startNode(t, into)
	is := m.Header()
	if is.ClusterID == was.ClusterID || is.MemberID == was.MemberID || is.ClusterID != restored.ClusterID || is.MemberID != restored.MemberID {
		t.Errorf("was %+v, is %+v, restored %+v", was, is, restored)
	}
	if restored.Was != was.Revision || restored.Revision != was.Revision+record.RevisionStep || is.Revision < restored.Revision {
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
			_, err := Restore(context.Background(), vfs.Default, bytes.NewReader(c.snapshot), dir)
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
