package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// world is a member with a schedule, whose time the test sets.
type world struct {
	t    *testing.T
	node *node.Node
	dir  string
	now  time.Time
	cfg  Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	n, err := node.Start(t.Context(), node.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	<-n.Ready()
	w := &world{t: t, node: n, dir: filepath.Join(t.TempDir(), "backups"), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.cfg = Config{Member: n, Dir: w.dir, Every: time.Hour, Keep: 3, Log: slog.New(slog.DiscardHandler), now: func() time.Time { return w.now }}
	return w
}

func (w *world) schedule() *Schedule {
	w.t.Helper()
	s, err := New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) put(key, value string) {
	w.t.Helper()
	if _, _, err := w.node.Put(w.t.Context(), keyspace.PutRequest{Key: []byte(key), Value: []byte(value)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) origin() origin { return origin{w.node.Header().MemberID, w.node.Incarnation()} }

// names returns what is in the directory.
func (w *world) names() []string {
	w.t.Helper()
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A backup has what was acknowledged before it, can be restored, and is readable by its owner only. The oldest are removed.
func TestBackupIsCompleteAndRetained(t *testing.T) {
	w := newWorld(t)
	s := w.schedule()
	if st := s.Stats(); !st.LastVerified.IsZero() || st.Every != time.Hour {
		t.Errorf("before the first one: %+v", st)
	}
	var last string
	for i := range 5 {
		w.put("k", fmt.Sprint(i))
		if err := s.attempt(t.Context()); err != nil {
			t.Fatal(err)
		}
		last = w.origin().nameAt(w.now)
		if st := s.Stats(); !st.LastVerified.Equal(w.now) || st.Bytes == 0 || st.Failures > 0 {
			t.Errorf("after one: %+v", st)
		}
		w.now = w.now.Add(time.Hour)
	}
	if names := w.names(); len(names) != 3 || names[2] != last {
		t.Errorf("in the directory are %v, and the last should be %s", names, last)
	}
	info, err := os.Stat(filepath.Join(w.dir, last))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v, %v", info.Mode(), err)
	}
	data, err := os.ReadFile(filepath.Join(w.dir, last))
	if err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "new")
	if _, err := node.Restore(t.Context(), vfs.Default, bytes.NewReader(data), into, node.RestoreOptions{Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	restored, err := node.Start(t.Context(), node.Config{Dir: into})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(err, restored.Stop(context.Background())) }()
	<-restored.Ready()
	if _, got, err := restored.Range(t.Context(), keyspace.RangeRequest{Key: []byte("k")}, false); err != nil || len(got.KVs) != 1 || string(got.KVs[0].Value) != "4" {
		t.Errorf("restored: %v, %v", got.KVs, err)
	}
	// A new process knows when the last backup was made, and what an earlier one left.
	rest := filepath.Join(w.dir, hidden+last+unpacked)
	if err := os.MkdirAll(filepath.Join(rest, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	again := w.schedule()
	if st := again.Stats(); w.origin().nameAt(st.LastVerified) != last {
		t.Errorf("a new process: %+v", st)
	}
	if err := again.attempt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := w.names(); len(names) != 3 {
		t.Errorf("after an interrupted one in the directory are %v", names)
	}
}

// A new cluster whose servers have the same names has the same ids of members. Backups of the former one stay.
func TestBackupsOfFormerClusterRemain(t *testing.T) {
	w := newWorld(t)
	w.cfg.Keep = 1
	s := w.schedule()
	former := origin{w.node.Header().MemberID, w.node.Incarnation() + 1}
	theirs := []string{hidden + former.nameAt(w.now) + partial, former.nameAt(w.now.Add(-2 * time.Hour)), former.nameAt(w.now.Add(-time.Hour))}
	for _, name := range theirs {
		if err := os.WriteFile(filepath.Join(w.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if st := w.schedule().Stats(); !st.LastVerified.IsZero() {
		t.Errorf("a backup of another directory counts: %+v", st)
	}
	if err := s.attempt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := w.names(); len(names) != len(theirs)+1 {
		t.Errorf("in the directory are %v", names)
	}
	w.cfg.Member = elsewhere{w.node}
	if err := w.schedule().attempt(t.Context()); err == nil || !strings.Contains(err.Error(), "data directory") {
		t.Errorf("a backup of another data directory: %v", err)
	}
}

// elsewhere is a member that says that it has another data directory.
type elsewhere struct{ *node.Node }

func (e elsewhere) Incarnation() uint64 { return e.Node.Incarnation() + 2 }

// After the clock was set back, new backups remain, and the ones with later times are the first to be removed.
func TestBackupsRemainAfterClockIsSetBack(t *testing.T) {
	w := newWorld(t)
	w.cfg.Keep = 2
	s := w.schedule()
	attempt := func(s *Schedule) string {
		t.Helper()
		if err := s.attempt(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w.origin().nameAt(w.now)
	}
	attempt(s)
	w.now = w.now.Add(time.Hour)
	last := attempt(s)
	w.now = w.now.Add(-48 * time.Hour)
	for what, s := range map[string]*Schedule{"this": s, "a new": w.schedule()} { // order: neither changes the other
		if st := s.Stats(); !st.LastVerified.Equal(w.now) {
			t.Errorf("%s process: the last one seems to be of %v", what, st.LastVerified)
		}
	}
	first := attempt(s)
	if names := w.names(); len(names) != 2 || names[0] != first || names[1] != last {
		t.Errorf("after one: %v", names)
	}
	was := w.now
	w.now = w.now.Add(time.Hour)
	if st := w.schedule().Stats(); !st.LastVerified.Equal(was) {
		t.Errorf("a new process: the last one seems to be of %v", st.LastVerified)
	}
	second := attempt(s)
	if names := w.names(); len(names) != 2 || names[0] != first || names[1] != second {
		t.Errorf("after two: %v", names)
	}
}

// A good backup counts as one if unfinished work cannot be removed. The failure is counted, and surplus backups are removed.
func TestFailedCleanupIsNoFailedBackup(t *testing.T) {
	w := newWorld(t)
	w.cfg.Keep = 1
	w.cfg.remove = func(path string) error {
		if strings.HasPrefix(filepath.Base(path), hidden) {
			return errors.New("the directory is busy")
		}
		return os.RemoveAll(path)
	}
	s := w.schedule()
	for n := range uint64(2) {
		if err := s.attempt(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := s.Stats(); !st.LastVerified.Equal(w.now) || st.Failures != n+1 {
			t.Errorf("after backup %d: %+v", n, st)
		}
		w.now = w.now.Add(time.Hour)
	}
	if names, err := filepath.Glob(filepath.Join(w.dir, "leasekeeper-*")); err != nil || len(names) != 1 {
		t.Errorf("the backups are %v, %v", names, err)
	}
}

// After the disk failed in such a way that a verification never ends, no more backups are tried, and the error says so.
func TestNoBackupAfterHalt(t *testing.T) {
	w := newWorld(t)
	tried := 0
	w.cfg.inspect = func(context.Context, vfs.FS, io.ReadSeeker, string, func(*pebble.DB) error) error {
		tried++
		return fmt.Errorf("%w: no space left on device", datadir.ErrHalted)
	}
	s := w.schedule()
	if err := s.attempt(t.Context()); !errors.Is(err, datadir.ErrHalted) || strings.Contains(err.Error(), "restart the server") {
		t.Errorf("the first: %v", err)
	}
	for range 2 {
		if err := s.attempt(t.Context()); !errors.Is(err, datadir.ErrHalted) || !strings.Contains(err.Error(), "restart the server") {
			t.Errorf("later: %v", err)
		}
	}
	if names := w.names(); tried != 1 || len(names) > 0 {
		t.Errorf("%d were tried, left are %v", tried, names)
	}
}

// A backup that is damaged on its way to the disk, or of which a part is missing, never gets its name.
func TestDamagedBackupIsDiscarded(t *testing.T) {
	w := newWorld(t)
	w.put("k", strings.Repeat("v", 100<<10))
	for what, damage := range map[string]func(data []byte) []byte{ // order: each is tried by itself
		"one bit":    func(data []byte) []byte { data[len(data)/2] ^= 4; return data },
		"the length": func(data []byte) []byte { return data[:len(data)-512] },
	} {
		w.cfg.written = func(path string) {
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, damage(data), 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		}
		s := w.schedule()
		if err := s.attempt(t.Context()); err == nil || !strings.Contains(err.Error(), "the backup could not be verified") {
			t.Errorf("%s: %v", what, err)
		}
		if names := w.names(); len(names) > 0 || !s.Stats().LastVerified.IsZero() {
			t.Errorf("%s: left are %v, %+v", what, names, s.Stats())
		}
	}
}

// Damage that the checksum cannot show, because it is in the member's own data, is found too.
func TestBackupOfDamagedRecordsIsDiscarded(t *testing.T) {
	w := newWorld(t)
	w.put("k", "v")
	w.cfg.Member = spoiled{w.node, func(db *pebble.DB) error {
		return db.Set(record.LeaseKey(7), []byte("this is no lease"), pebble.Sync)
	}}
	if err := w.schedule().attempt(t.Context()); err == nil || !strings.Contains(err.Error(), "could not be verified") {
		t.Errorf("a damaged record: %v", err)
	}
	w.cfg.Member = spoiled{w.node, func(db *pebble.DB) error {
		return db.Set([]byte("v\x00"), []byte("this is no version"), pebble.Sync)
	}}
	if err := w.schedule().attempt(t.Context()); err == nil || !strings.Contains(err.Error(), "could not be verified") {
		t.Errorf("a damaged key: %v", err)
	}
	if names := w.names(); len(names) > 0 {
		t.Errorf("left are %v", names)
	}
}

// spoiled is a member whose snapshots are of data that spoil has changed.
type spoiled struct {
	*node.Node
	spoil func(*pebble.DB) error
}

func (s spoiled) Snapshot(ctx context.Context) (*datadir.Snapshot, error) {
	whole, err := s.Node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	_, err = whole.WriteTo(&data)
	files := vfs.NewMem()
	if err = errors.Join(err, whole.Close()); err == nil {
		err = datadir.Restore(ctx, files, bytes.NewReader(data.Bytes()), "dir", func(db *pebble.DB) (gate.Version, error) { return 0, s.spoil(db) })
	}
	if err != nil {
		return nil, err
	}
	db, lock, err := datadir.Open(files, "dir", datadir.Options{Halt: func(error) {}})
	if err != nil {
		return nil, err
	}
	return datadir.TakeSnapshot(ctx, files, "dir", db, 1, func() { err = errors.Join(db.Close(), lock.Close()) })
}

// A member that is not up to date makes no backup, and one of another member or an older state gets no name.
func TestStaleMemberMakesNoBackup(t *testing.T) {
	w := newWorld(t)
	w.put("k", "v")
	w.cfg.Member = stale{w.node, replica.Header{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.schedule().attempt(ctx); !errors.Is(err, replica.ErrNoLeader) {
		t.Errorf("without a leader: %v", err)
	}
	newer := w.node.Header()
	newer.Revision += 5
	w.cfg.Member = ahead{stale{w.node, newer}}
	if err := w.schedule().attempt(t.Context()); err == nil || !strings.Contains(err.Error(), "the member was") {
		t.Errorf("an older state: %v", err)
	}
	if names := w.names(); len(names) > 0 {
		t.Errorf("left are %v", names)
	}
}

// stale is a member without a leader; ahead is one that says that its state is another one.
type stale struct {
	*node.Node
	header replica.Header
}

func (s stale) Confirm(context.Context) error { return replica.ErrNoLeader }

type ahead struct{ stale }

func (a ahead) Header() replica.Header { return a.header }

func (a ahead) Confirm(ctx context.Context) error { return a.Node.Confirm(ctx) }

// A backup that would leave too little space is not begun.
func TestBackupLeavesSpace(t *testing.T) {
	w := newWorld(t)
	w.cfg.MinFree = 1 << 20
	w.cfg.free = func(string) (uint64, bool) { return 1 << 20, true }
	if err := w.schedule().attempt(t.Context()); err == nil || !strings.Contains(err.Error(), "free bytes") {
		t.Errorf("with little space: %v", err)
	}
	if names := w.names(); len(names) > 0 {
		t.Errorf("left are %v", names)
	}
	w.cfg.free = func(string) (uint64, bool) { return 0, false }
	if err := w.schedule().attempt(t.Context()); err != nil {
		t.Errorf("where the system does not say: %v", err)
	}
}

// A directory that cannot be written to is refused at once.
func TestUnwritableDirectoryIsRefused(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/backups"} {
		w.cfg.Dir = dir
		if _, err := New(w.cfg); err == nil || !strings.Contains(err.Error(), "name another one with --backup-dir") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	w.cfg.Dir, w.cfg.Keep = w.dir, 0
	if _, err := New(w.cfg); err == nil {
		t.Error("keeping no backup is accepted")
	}
}

// Run makes a backup at once if there is none, goes on after a failure, and ends with its context.
func TestRunMakesBackupsUntilItsContextEnds(t *testing.T) {
	w := newWorld(t)
	w.cfg.now, w.cfg.Every = nil, MinEvery
	failures := 2
	w.cfg.written = func(path string) {
		if failures--; failures >= 0 {
			if err := os.Truncate(path, 7); err != nil {
				t.Error(err)
			}
		}
	}
	s := w.schedule()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	for s.Stats().LastVerified.IsZero() {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	<-done
	if st := s.Stats(); st.Failures != 2 {
		t.Errorf("%+v", st)
	}
}
