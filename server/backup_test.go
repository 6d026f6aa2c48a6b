package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/node"
)

// withBackups returns a configuration of a server that makes backups.
func withBackups(dir string) Config {
	cfg := anyPort()
	cfg.Backup = &Backup{Dir: dir, Every: time.Second, Keep: 2}
	return cfg
}

// metric returns the value of a gauge or counter without labels.
func (f *front) metric(name string) float64 {
	f.t.Helper()
	families, err := f.server.metrics.registry.Gather()
	wantOK(f.t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.Metric[0].GetGauge().GetValue() + family.Metric[0].GetCounter().GetValue()
		}
	}
	f.t.Fatalf("there is no metric %s", name)
	return 0
}

// A running server makes backups, reports when, and keeps as many as it should. The newest has what was written before it.
func TestServerMakesBackups(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	f := startWith(t, withBackups(dir), nil)
	f.grant(60, 7)
	wrote := time.Now()
	f.put("k", "v")
	verified := func() time.Time {
		return time.UnixMilli(int64(f.metric("leasekeeper_backup_last_verified_timestamp_seconds") * 1000))
	}
	for !verified().After(wrote) {
		time.Sleep(10 * time.Millisecond)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.snapshot"))
	wantOK(t, err)
	if len(names) == 0 || len(names) > 3 { // the third while the first is about to be removed
		t.Fatalf("the backups are %v", names)
	}
	newest, err := os.Open(names[len(names)-1])
	wantOK(t, err)
	defer newest.Close()
	contents, err := node.InspectSnapshot(f.ctx(), vfs.Default, newest, filepath.Join(t.TempDir(), "inspect"))
	wantOK(t, err)
	wantEqual(t, "leases", contents.Leases, 1)
	wantEqual(t, "revision", contents.Revision, 2)
	wantEqual(t, "member", contents.MemberID, f.node.Header().MemberID)
	wantEqual(t, "interval", f.metric("leasekeeper_backup_interval_seconds"), 1)
	wantEqual(t, "failures", f.metric("leasekeeper_backup_failures_total"), 0)
	if f.metric("leasekeeper_backup_last_bytes") < 1000 || f.metric("leasekeeper_backup_last_duration_seconds") <= 0 {
		t.Error("the metrics of the last backup are not set")
	}
	// The cleanup stops the server, perhaps in the middle of a backup. goleak finds goroutines that remain.
}

// A server does not start if it cannot make the backups that it is asked for.
func TestServerRefusesBackupsThatItCannotMake(t *testing.T) {
	n := startNode(t)
	file := filepath.Join(t.TempDir(), "file")
	wantOK(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		backup Backup
		want   string
	}{
		{Backup{Dir: file}, "backups cannot be written to " + file},
		{Backup{}, "backups need a directory"},
		{Backup{Dir: t.TempDir(), Every: time.Millisecond}, "backups every 1ms are too many"},
		{Backup{Dir: t.TempDir(), Keep: -1}, "-1 backups cannot be kept"},
	} {
		cfg := anyPort()
		cfg.Backup = &c.backup
		if _, err := New(cfg, n); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.backup, err, c.want)
		}
	}
}

// In a cluster each member makes its own backups, in one directory. Each has what another member acknowledged just before.
func TestBackupOfAFollowerHasWhatOthersAcknowledged(t *testing.T) {
	tr := startTrio(t, waitLimit)
	dir := t.TempDir()
	for i, m := range tr.members {
		other := tr.members[(i+1)%len(tr.members)]
		written := other.put("k", fmt.Sprint(i)).Header.Revision
		cfg := withBackups(dir)
		cfg.Backup.Every = time.Hour
		s, err := newBackups(cfg.withDefaults(), m.node)
		wantOK(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		eventually(t, "there is a backup", func() bool { return !s.Stats().LastVerified.IsZero() })
		cancel()
		running.Wait()
		names, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("leasekeeper-%016x-*.snapshot", m.id)))
		wantOK(t, err)
		wantEqual(t, "backups of the member", len(names), 1)
		file, err := os.Open(names[0])
		wantOK(t, err)
		defer file.Close()
		contents, err := node.InspectSnapshot(m.ctx(), vfs.Default, file, filepath.Join(t.TempDir(), "inspect"))
		wantOK(t, err)
		if contents.MemberID != m.id || contents.Revision < written {
			t.Errorf("the backup of %x has %+v, and revision %d was acknowledged", m.id, contents, written)
		}
	}
}
