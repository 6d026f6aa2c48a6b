package node

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
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
