package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

const (
	// MinEvery is the shortest interval. Names of backups have seconds.
	MinEvery = time.Second
	// minLimit is the least time that a backup may take. If the interval is longer, the limit is the interval.
	minLimit = 10 * time.Minute
	// confirmLimit bounds the wait for the leader's confirmation that the member is up to date. A member without a leader
	// asks again after confirmPause.
	confirmLimit = time.Minute
	confirmPause = time.Second
)

// Member is what this package uses of a member.
type Member interface {
	Header() replica.Header
	Incarnation() uint64
	// Confirm returns when the member has applied everything that was acknowledged before.
	Confirm(context.Context) error
	Snapshot(context.Context) (*datadir.Snapshot, error)
}

// Config says what is backed up, where and when.
type Config struct {
	Member Member
	Dir    string        // created if it does not exist
	Every  time.Duration // from one backup to the next; at least MinEvery
	Keep   int           // backups that remain; at least 1
	// MinFree is how many bytes a backup leaves free on the file system of Dir.
	MinFree uint64
	Log     *slog.Logger

	now     func() time.Time                            // time.Now, except in tests
	written func(path string)                           // called before a file is verified; nil except in tests
	remove  func(path string) error                     // os.RemoveAll, except in tests
	inspect inspection                                  // datadir.Inspect, except in tests
	free    func(dir string) (bytes uint64, known bool) // freeBytes, except in tests
}

type inspection func(ctx context.Context, files vfs.FS, snapshot io.ReadSeeker, dir string, look func(*pebble.DB) error) error

// Stats are what a [Schedule] has done since the process started. LastVerified is also known from before.
type Stats struct {
	Every        time.Duration
	LastVerified time.Time // zero: there is no backup
	Bytes        int64     // of the last backup
	Took         time.Duration
	Failures     uint64
}

// Schedule makes the backups of one member. Its methods are safe for concurrent use, except that Run is called once.
type Schedule struct {
	cfg    Config
	halted error // of the verification that never ends, or nil: no more backups are made; used by Run only

	mu    sync.Mutex
	stats Stats
}

// New makes the directory and tries whether it can be written to.
func New(cfg Config) (*Schedule, error) {
	if cfg.Every < MinEvery || cfg.Keep < 1 {
		return nil, fmt.Errorf("backups every %v, of which %d are kept, make no sense: make them every %v or less often, and keep at least 1", cfg.Every, cfg.Keep, MinEvery)
	}
	if cfg.now == nil {
		cfg.now = time.Now
	}
	if cfg.free == nil {
		cfg.free = freeBytes
	}
	if cfg.remove == nil {
		cfg.remove = os.RemoveAll
	}
	if cfg.inspect == nil {
		cfg.inspect = datadir.Inspect
	}
	s := &Schedule{cfg: cfg, stats: Stats{Every: cfg.Every}}
	if err := s.tryDirectory(); err != nil {
		return nil, fmt.Errorf("backups cannot be written to %s: make it a directory that this server can write to, or name another one with --backup-dir (%w)", cfg.Dir, err)
	}
	own, err := s.own()
	if err != nil {
		return nil, fmt.Errorf("the directory of backups %s cannot be read: %w", cfg.Dir, err)
	}
	s.stats.LastVerified = s.origin().newest(own, cfg.now())
	return s, nil
}

// Stats returns what was done so far. If the clock was set back behind the last backup, that counts as begun now: otherwise
// it would seem new for as long as the clock was set back.
func (s *Schedule) Stats() Stats {
	now := s.cfg.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.LastVerified.After(now) {
		s.stats.LastVerified = now
	}
	return s.stats
}

func (s *Schedule) origin() origin {
	return origin{s.cfg.Member.Header().MemberID, s.cfg.Member.Incarnation()}
}

func (s *Schedule) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// tryDirectory makes the directory, and a file in it that it removes again.
func (s *Schedule) tryDirectory() error {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.cfg.Dir, hidden+s.origin().prefix()+"*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("a test whether this directory can be written to")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// own returns the names of this member's backups, in the order of the times in them.
func (s *Schedule) own() ([]string, error) {
	names, err := vfs.Default.List(s.cfg.Dir)
	return s.origin().backups(names), err
}

// Run makes backups until ctx ends.
func (s *Schedule) Run(ctx context.Context) {
	failures := 0
	for {
		wait := pause(s.cfg.now(), s.Stats().LastVerified, s.cfg.Every, failures, rand.Uint64())
		if lifetime.Pause(ctx, wait) != nil {
			return
		}
		err := s.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		if failures++; err == nil {
			failures = 0
			continue
		}
		s.fail()
		s.cfg.Log.Error("a backup failed", "error", err, "retry_in", pause(s.cfg.now(), time.Time{}, s.cfg.Every, failures, 0))
	}
}

// attempt makes one backup, and removes surplus ones.
func (s *Schedule) attempt(ctx context.Context) error {
	if s.halted != nil {
		return fmt.Errorf("the disk failed during an earlier backup, and no more are made: repair the disk and restart the server (%w)", s.halted)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, max(s.cfg.Every, minLimit), errors.New("it took too long"))
	defer cancel()
	began := s.cfg.now()
	name := s.origin().nameAt(began)
	size, err := s.write(ctx, name)
	if err := s.removeLeftovers(); err != nil { // the backup may be good all the same
		s.fail()
		s.cfg.Log.Error("unfinished backups could not be removed; the next backup tries again", "error", err)
	}
	if err != nil {
		if errors.Is(err, datadir.ErrHalted) {
			s.halted = err
		}
		return err
	}
	s.mu.Lock()
	s.stats.LastVerified, s.stats.Bytes, s.stats.Took = began, size, s.cfg.now().Sub(began)
	took := s.stats.Took
	s.mu.Unlock()
	s.cfg.Log.Info("a backup was made and verified", "file", s.path(name), "bytes", size, "took", took)
	if err := s.prune(name); err != nil { // no reason to make the backup again
		s.fail()
		s.cfg.Log.Error("old backups could not be removed; the next backup tries again", "error", err)
	}
	return nil
}

// fail counts a failure.
func (s *Schedule) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Failures++
}

// removeLeftovers removes unfinished work, also that of an earlier process.
func (s *Schedule) removeLeftovers() error {
	names, err := vfs.Default.List(s.cfg.Dir)
	for _, name := range names {
		if s.origin().leftover(name) {
			err = errors.Join(err, s.cfg.remove(s.path(name)))
		}
	}
	return err
}

// prune removes the oldest backups of this member, after the one with the name made.
func (s *Schedule) prune(made string) error {
	own, err := s.own()
	for _, name := range surplus(own, made, s.cfg.Keep) {
		err = errors.Join(err, s.cfg.remove(s.path(name)))
	}
	return err
}
