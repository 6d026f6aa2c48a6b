package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
)

// A member that still waits for its cluster to be founded can make snapshots. A server restored from one is alone,
// and serves.
func TestRestoredSnapshotOfNewMemberServes(t *testing.T) {
	q := (&quorum{}).prepare(t)
	n := q.start(q.ids[0])
	into := filepath.Join(t.TempDir(), "new")
	mustRestore(t, takeSnapshot(t, n), into)
	m, err := Start(context.Background(), Config{Dir: into})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(err, m.Stop(context.Background())) }()
	select {
	case <-m.Ready():
	case <-time.After(20 * time.Second):
		t.Fatalf("the restored server does not serve: %v", m.CheckReady())
	}
	mustPut(t, m, "k", "v", 0)
}

// A cluster that has lost its majority is recovered from a member that was killed: the new cluster has all that was
// acknowledged through this member, new ids and higher tokens. The directory of the survivor stays as it was.
func TestSurvivorOfLostQuorumBecomesNewCluster(t *testing.T) {
	q := newQuorum(t)
	ctx := context.Background()
	leader, _ := q.leader()
	if _, _, err := leader.Grant(ctx, 7, time.Hour); err != nil {
		t.Fatal(err)
	}
	h := mustPut(t, leader, "k", "v", 7)
	mustPut(t, leader, "last", "v", 0) // may not be in the survivor's state, but is in its log
	survivor := killed(t, q.dirs[leader.Header().MemberID])
	before := listing(t, filepath.Join(survivor, datadir.DatabaseDir))
	into := filepath.Join(t.TempDir(), "new")
	o := RestoreOptions{Now: time.Now(), HoldOff: 0}

	_, found, err := Rebuild(ctx, vfs.Default, survivor, into, false, o)
	if !errors.Is(err, ErrLossNotAccepted) || found.Revision < h.Revision || found.Leases != 1 || found.MemberID != leader.Header().MemberID || found.LastIndex == 0 || found.LastTerm == 0 {
		t.Errorf("without acceptance: %+v, %v", found, err)
	}
	if left, err := os.ReadDir(into); err != nil || len(left) > 0 {
		t.Errorf("without acceptance these are left: %v, %v", left, err)
	}
	var copied, size int64
	o.CopyProgress = func(c, s int64) { copied, size = c, s }
	restored, _, err := Rebuild(ctx, vfs.Default, survivor, into, true, o)
	if err != nil {
		t.Fatal(err)
	}
	if copied == 0 || copied != size {
		t.Errorf("the progress ends with %d of %d bytes", copied, size)
	}
	if after := listing(t, filepath.Join(survivor, datadir.DatabaseDir)); after != before {
		t.Errorf("the survivor's directory was\n%s\nand is\n%s", before, after)
	}
	m := startNode(t, into)
	is := m.Header()
	if is.ClusterID != restored.ClusterID || is.ClusterID == leader.Header().ClusterID || is.MemberID == leader.Header().MemberID || is.Revision < restored.Revision {
		t.Errorf("restored %+v, is %+v", restored, is)
	}
	if kvs := get(t, m, "k"); len(kvs) != 1 || kvs[0].ModRevision != h.Revision || kvs[0].Lease != 7 {
		t.Errorf("the key is %+v", kvs)
	}
	if kvs := get(t, m, "last"); len(kvs) != 1 {
		t.Errorf("the last key is %+v", kvs)
	}
	if issued := tokens(t, m, 1); issued[0] <= restored.Revision {
		t.Errorf("token %d after revision %d", issued[0], restored.Revision)
	}
}

// Rebuild refuses what is no data directory, the directory of a running server, and a directory in use.
func TestRebuildRefusesUnsuitableDirectories(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	startNode(t, dir)
	stopped := killed(t, dir)
	write(t, filepath.Join(other, "holiday.jpg"), "sun")
	fresh := filepath.Join(t.TempDir(), "new")
	for _, c := range []struct{ from, into, want string }{
		{other, fresh, "is not a data directory"},
		{filepath.Join(other, "none"), fresh, "is not a data directory"},
		{dir, fresh, "is in use by another process"},
		{stopped, other, "is not empty"},
		{stopped, "", "no data directory is named"},
	} {
		_, _, err := Rebuild(context.Background(), vfs.Default, c.from, c.into, true, restoring())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("from %s into %s: %v, want %q", c.from, c.into, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(fresh, datadir.VersionFile)); err == nil {
		t.Error("there is a data directory")
	}
}
