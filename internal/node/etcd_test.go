package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/etcdfile"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// saveForEtcd writes a snapshot in etcd's format into a file, and returns its path.
func saveForEtcd(t *testing.T, n *Node) string {
	t.Helper()
	s, err := n.EtcdSnapshot(context.Background(), []etcdfile.Member{{ID: n.Header().MemberID, Name: "one"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	written, err := s.WriteTo(&b)
	if err = errors.Join(err, s.Close()); err != nil || written != int64(b.Len()) {
		t.Fatalf("wrote %d bytes, %d arrived: %v", written, b.Len(), err)
	}
	path := filepath.Join(t.TempDir(), "etcd.snapshot")
	write(t, path, b.String())
	return path
}

func mustImport(t *testing.T, path, dir string, o RestoreOptions) (Restored, etcdfile.Imported) {
	t.Helper()
	restored, found, err := Import(context.Background(), vfs.Default, path, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return restored, found
}

// leftovers returns the copies in a data directory.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, datadir.SnapshotPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// all returns all keys of a member.
func all(t *testing.T, n *Node) []keyspace.KV {
	t.Helper()
	_, got, err := n.Range(context.Background(), keyspace.RangeRequest{Key: []byte{0}, End: []byte{0}}, false)
	if err != nil {
		t.Fatal(err)
	}
	return got.KVs
}

// When the disk fails during an export, the member serves on, and makes no more exports: what the one uses is not freed.
func TestExportAfterDiskFailedIsRefused(t *testing.T) {
	inOwnProcess(t, func() (err error) {
		dir, err := os.MkdirTemp("", "export")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		var made, last atomic.Int64 // tables of copies; last is 0 while the disk is sound
		files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, datadir.SnapshotPrefix) && strings.HasSuffix(op.Path, ".sst") &&
				made.Add(1) >= last.Load() && last.Load() > 0 {
				return errors.New("no space left on device")
			}
			return nil
		}))
		ctx := context.Background()
		n, err := Start(ctx, Config{Dir: dir, FS: files})
		if err != nil {
			return err
		}
		<-n.Ready()
		put := func() error {
			_, _, err := n.Put(ctx, keyspace.PutRequest{Key: []byte("k"), Value: []byte("v")})
			return err
		}
		if err := put(); err != nil {
			return err
		}
		sound, err := n.EtcdSnapshot(ctx, nil)
		if err = errors.Join(err, put()); err != nil {
			return err
		}
		if err := sound.Close(); err != nil {
			return err
		}
		last.Store(made.Swap(0)) // the end of the next export fails
		for range 2 {
			if _, err := n.EtcdSnapshot(ctx, nil); !errors.Is(err, ErrExportsHalted) {
				return fmt.Errorf("the export: %v", err)
			}
		}
		if err := errors.Join(put(), n.Stop(ctx)); err != nil {
			return fmt.Errorf("the member: %w", err)
		}
		return nil
	})
}

// An imported server has the keys with their revisions, versions and leases, and the leases with their full TTL. It is a
// new cluster with higher revisions, and serves: names go on, tokens rise, and the end of a lease deletes its keys.
func TestImportedMemberServesWhatTheFileHas(t *testing.T) {
	ctx := context.Background()
	n := startNode(t, t.TempDir())
	if _, _, err := n.Grant(ctx, 7, time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		mustPut(t, n, "k", fmt.Sprint(i), 7)
	}
	mustPut(t, n, "plain", "v", 0)
	held, err := n.Claim(ctx, ownership.Claim{Name: "job", Lease: 8, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Compact(ctx, n.Header().Revision, false); err != nil {
		t.Fatal(err)
	}
	mustPut(t, n, "later", "v", 0)
	before := all(t, n)
	into := filepath.Join(t.TempDir(), "new")
	restored, found := mustImport(t, saveForEtcd(t, n), into, RestoreOptions{Now: time.Now(), HoldOff: 0})
	if found.Keys != len(before) || found.Leases != 2 || !found.Checked || restored.Was != n.Header().Revision || restored.Leases != 2 {
		t.Errorf("found %+v, restored %+v", found, restored)
	}
	m := startNode(t, into)
	is := m.Header()
	if is.ClusterID != restored.ClusterID || is.ClusterID == n.Header().ClusterID || is.MemberID == n.Header().MemberID || is.Revision < restored.Revision || restored.Revision < restored.Was+record.MinRevisionRise {
		t.Errorf("restored %+v, is %+v", restored, is)
	}
	if after := all(t, m); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the keys are\n%v\nwant\n%v", after, before)
	}
	if _, err := m.store.Range(ctx, keyspace.RangeRequest{Key: []byte("k"), Revision: restored.Was}); !errors.Is(err, keyspace.ErrCompacted) {
		t.Errorf("history: %v", err)
	}
	_, left, err := m.TimeToLive(ctx, 7, true)
	if err != nil || left.Granted != time.Hour || left.Remaining < 59*time.Minute || fmt.Sprint(left.Items) != "[{k}]" {
		t.Errorf("the lease is %+v, %v", left, err)
	}
	other, err := m.Claim(ctx, ownership.Claim{Name: "job", Lease: 99, TTL: time.Minute})
	if err != nil || other.Current == nil || other.Current.Token != held.Token {
		t.Errorf("another claim of the held name: %+v, %v", other, err)
	}
	if _, err := m.Revoke(ctx, 8); err != nil {
		t.Errorf("the end of the holder's lease: %v", err)
	}
	if next, err := m.Claim(ctx, ownership.Claim{Name: "job", Lease: 99, TTL: time.Minute}); err != nil || next.Current != nil || next.Token <= restored.Revision {
		t.Errorf("the next holder: %+v, %v", next, err)
	}
	if issued := tokens(t, m, 3); issued[0] <= restored.Revision || issued[0] <= held.Token {
		t.Errorf("tokens %v after %d and revision %d", issued, held.Token, restored.Revision)
	}
	if _, err := m.Revoke(ctx, 7); err != nil || len(get(t, m, "k")) > 0 {
		t.Errorf("after the end of the lease the key is %v, %v", get(t, m, "k"), err)
	}
}

// By default names are held off for the largest TTL in the file, and what cannot be imported leaves no directory.
func TestImportHoldsOffAndRefusesAsRestoreDoes(t *testing.T) {
	ctx := context.Background()
	n := startNode(t, t.TempDir())
	if _, _, err := n.Grant(ctx, 7, time.Hour); err != nil {
		t.Fatal(err)
	}
	mustPut(t, n, "k", "v", 7)
	path := saveForEtcd(t, n)
	into := filepath.Join(t.TempDir(), "new")
	if restored, _ := mustImport(t, path, into, RestoreOptions{Now: time.Now(), HoldOff: -1}); restored.HoldOff != time.Hour {
		t.Errorf("restored %+v", restored)
	}
	m := startNode(t, into)
	if _, _, err := m.Grant(ctx, 9, time.Hour); !errors.Is(err, replica.ErrHeldOff) {
		t.Errorf("grant: %v", err)
	}
	wrong := &record.RevisionError{}
	none := filepath.Join(t.TempDir(), "none")
	if _, _, err := Import(ctx, vfs.Default, path, none, RestoreOptions{Now: time.Unix(1, 0)}); !errors.As(err, &wrong) {
		t.Errorf("with a wrong clock: %v", err)
	}
	if _, _, err := Import(ctx, vfs.Default, filepath.Join(none, "nothing"), none, restoring()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if _, err := os.Stat(filepath.Join(none, datadir.VersionFile)); err == nil {
		t.Error("there is a data directory")
	}
	if _, _, err := Import(ctx, vfs.Default, path, into, restoring()); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("into a used directory: %v", err)
	}
}

// Each kind of snapshot is refused where the other is expected, with what to do.
func TestSnapshotsOfOtherFormatAreRefused(t *testing.T) {
	n := startNode(t, t.TempDir())
	mustPut(t, n, "k", "v", 0)
	into := filepath.Join(t.TempDir(), "new")
	foreign, err := os.ReadFile(saveForEtcd(t, n))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(context.Background(), vfs.Default, bytes.NewReader(foreign), into, restoring()); err == nil || !strings.Contains(err.Error(), "leasekeeper import --from-etcd") {
		t.Errorf("restore of etcd's format: %v", err)
	}
	own := filepath.Join(t.TempDir(), "own")
	write(t, own, string(takeSnapshot(t, n)))
	if _, _, err := Import(context.Background(), vfs.Default, own, into, restoring()); err == nil || !strings.Contains(err.Error(), "leasekeeper snapshot restore") {
		t.Errorf("import of our own format: %v", err)
	}
}

// A member makes one snapshot in etcd's format at a time, and leaves nothing in the data directory.
func TestSnapshotsInFormatOfEtcdAreMadeOneAtATime(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	mustPut(t, n, "k", strings.Repeat("v", 1<<20), 0)
	ctx, leave := context.WithCancel(context.Background())
	s, err := n.EtcdSnapshot(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.EtcdSnapshot(ctx, nil); !errors.Is(err, ErrSnapshotUnderWay) {
		t.Errorf("a second one: %v", err)
	}
	if len(leftovers(t, dir)) != 1 {
		t.Errorf("in the directory are %v", leftovers(t, dir))
	}
	leave()
	if _, err := s.WriteTo(&bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the client has left: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := n.EtcdSnapshot(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	saveForEtcd(t, n)
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}

// The reserve of disk space is not used for a snapshot in etcd's format.
func TestSnapshotInFormatOfEtcdLeavesTheReserve(t *testing.T) {
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{
		Dir: dir, Space: replica.SpaceLimits{MinFree: 1000}, FreeBytes: func(string) (uint64, error) { return exportMargin, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(err, n.Stop(context.Background())) }()
	<-n.Ready()
	if _, err := n.EtcdSnapshot(context.Background(), nil); !errors.Is(err, replica.ErrNoSpace) {
		t.Errorf("without space: %v", err)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}
