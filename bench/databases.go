package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// A way is one way to hold names in a database, or in a file: a Keeper's, or what one would take instead.
type way struct {
	name string
	// open makes users of an empty database.
	open func(ctx context.Context, place string, p plan) (users, error)
	// renewer makes one of several programs that renew leases; nil if this way renews on its own, or not at all.
	renewer func(ctx context.Context, place string, number, leases int) (renewer, error)
	// store is the URL that a process of its own opens; nil if no crowd of processes is measured.
	store func(place string) string
	// keeps says that many names can be held on a few connections, and are extended meanwhile.
	keeps bool
}

// A database is where names are held, in several ways.
type database struct {
	reference string // the way that the others are divided by
	handOver  string // the goal of a hand-over
	// slow says that its server takes so long for a statement about many leases that none is measured.
	slow bool
	ways []way
	// crowds are those that are measured, and crowdGoals says that they have goals.
	crowds     []crowd
	crowdGoals bool
	// lockGoal is the goal of the rate of claims and releases at 64 in flight, and keptGoals says that the cost of names
	// that are kept has goals.
	lockGoal  string
	keptGoals bool
	// runs says that runs of the command are measured.
	runs bool
	// prepare starts its server; nil if it has none.
	prepare func(ctx context.Context, s *stage, say progress) error
	// place makes an empty one, and returns where it is.
	place func(s *stage) (string, error)
	// used is how much time on a core its server has used; nil if it has none.
	used func(s *stage) time.Duration
}

// A task is one measurement of a way.
type task struct {
	name string
	run  func(ctx context.Context, w way, at site, z size) ([]figure, error)
	once bool // it takes long, so it is measured in one round
}

// A site is where a measurement takes place: an empty database, how much time on a core its server has used, and our
// command.
type site struct {
	place   string
	used    func() time.Duration
	program func(ctx context.Context) (string, error)
}

// renewedTogether is how many leases one keeper renews with one statement.
const renewedTogether = 1000

func tasks(d database, z size) []task {
	list := []task{
		{name: "acquire and release a name, 1 in flight", run: lockInDatabase(1, "")},
		{name: "acquire and release a name, 64 in flight", run: lockInDatabase(64, d.lockGoal)},
	}
	for _, n := range []int{1, 64} {
		list = append(list, task{name: fmt.Sprintf("renewals of %d keepers, a lease each", n), run: renewInDatabase(n, 1)})
	}
	if !d.slow {
		list = append(list,
			task{name: fmt.Sprintf("renewals of a keeper with %s leases", thousands(renewedTogether)), run: renewInDatabase(1, renewedTogether)},
			task{name: keptName(z.idleOne), run: keepInDatabase(d.keptGoals), once: true})
	}
	// The last holder pauses until waiters that poll have looked.
	for _, c := range d.crowds {
		list = append(list, task{name: c.String(), run: inCrowd(c, d.crowdGoals)})
	}
	if d.runs {
		list = append(list, task{name: runsName, run: measureRuns})
	}
	return append(list,
		task{name: "hand-over of a name between 2", run: func(ctx context.Context, w way, at site, z size) ([]figure, error) {
			opened, err := w.open(ctx, at.place, plan{2, lockTTL})
			if err != nil {
				return nil, err
			}
			defer opened.close()
			const rest, turns = 2 * goosePoll, 6
			z.span = max(z.span, turns*rest)
			return contending(ctx, opened, z, &baton{waiters: 2, rest: rest}, d.handOver)
		}})
}

func lockInDatabase(inFlight int, goal string) func(context.Context, way, site, size) ([]figure, error) {
	return func(ctx context.Context, w way, at site, z size) ([]figure, error) {
		opened, err := w.open(ctx, at.place, plan{min(inFlight, rateConnections), lockTTL})
		if err != nil {
			return nil, err
		}
		defer opened.close()
		p, err := locking(ctx, opened, at.used, z, inFlight)
		if err != nil {
			return nil, err
		}
		return p.withClient(goal), nil
	}
}

// renewInDatabase has several programs renew leases, each all of its own in one call.
func renewInDatabase(programs, each int) func(context.Context, way, site, size) ([]figure, error) {
	return func(ctx context.Context, w way, at site, z size) (figures []figure, err error) {
		if w.renewer == nil {
			return nil, nil
		}
		all := make([]renewer, programs)
		for i := range all {
			if all[i], err = w.renewer(ctx, at.place, i, each); err != nil {
				return nil, err
			}
			defer all[i].close(context.WithoutCancel(ctx))
		}
		p, err := pacing(ctx, at.used, z, programs, func(ctx context.Context, worker int, count *atomic.Int64) error {
			for {
				if err := all[worker].renew(ctx); err != nil {
					return err
				}
				count.Add(int64(each))
			}
		})
		if err != nil {
			return nil, err
		}
		return p.figures(""), nil
	}
}

// A renewer renews all leases that it holds with one call.
type renewer interface {
	renew(ctx context.Context) error
	close(ctx context.Context)
}

// keeperRenewer is a backend with leases.
type keeperRenewer struct {
	backend.Backend
	leases []backend.Lease
}

func newKeeperRenewer(ctx context.Context, url string, number, leases int) (renewer, error) {
	b, err := backend.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	r := keeperRenewer{b, make([]backend.Lease, leases)}
	for i := range r.leases {
		claim := backend.Claim{ID: backend.ID{byte(number), byte(i), byte(i >> 8), 1}, Name: renewedName(number, i),
			Holder: backend.Holder{ID: "bench"}, TTL: time.Hour}
		if r.leases[i], _, err = b.Claim(ctx, claim); err != nil {
			return nil, errors.Join(err, b.Close(ctx))
		}
	}
	return r, nil
}

func renewedName(number, i int) string { return fmt.Sprintf("renewed/%d/%d", number, i) }

func (r keeperRenewer) renew(ctx context.Context) error {
	var failed error
	err := r.Renew(ctx, r.leases, func(_ int, n backend.Renewal) { failed = errors.Join(failed, n.Err) })
	return errors.Join(err, failed)
}

func (r keeperRenewer) close(ctx context.Context) { _ = r.Close(ctx) } // the database is thrown away

// measureDatabases prints a table for each database.
func (b *bench) measureDatabases(ctx context.Context, out io.Writer, dir string) error {
	stage, err := newStage(dir)
	if err != nil {
		return err
	}
	defer stage.end()
	stage.built = b.built
	for _, d := range databaseList() {
		d.ways = slices.DeleteFunc(d.ways, func(w way) bool { return !b.aimed.MatchString(w.name) })
		if len(d.ways) == 0 {
			continue
		}
		if d.prepare != nil {
			if err := d.prepare(ctx, stage, b.say); err != nil {
				return err
			}
		}
		if err := b.measureDatabase(ctx, out, stage, d); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measureDatabase(ctx context.Context, out io.Writer, s *stage, d database) error {
	t := &table{reference: d.reference, nameWidth: databaseWidth}
	for _, w := range d.ways {
		t.targets = append(t.targets, w.name)
	}
	rec, err := b.newRecorder(out, t, "databases, "+strings.Join(t.targets, ", "))
	if err != nil {
		return err
	}
	for _, task := range tasks(d, b.size) {
		if !b.wanted.MatchString(task.name) {
			continue
		}
		err := rec.row(ctx, task.name, func(add func(string, figure)) error {
			rounds := b.size.rounds
			if task.once {
				rounds = 1
			}
			for round := range rounds {
				for _, w := range d.ways {
					b.say.line("%s: %s, round %d of %d", task.name, w.name, round+1, rounds)
					figures, err := b.measureWay(ctx, s, d, w, task)
					if err != nil {
						return fmt.Errorf("%s: %s: %w", task.name, w.name, err)
					}
					for _, f := range figures {
						add(w.name, f)
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return rec.end()
}

// databaseWidth is the width of the names of rows about databases.
const databaseWidth = 52

func (b *bench) measureWay(ctx context.Context, s *stage, d database, w way, t task) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, scenarioLimit)
	defer cancel()
	place, err := d.place(s)
	if err != nil {
		return nil, err
	}
	at := site{place: place, used: func() time.Duration { return 0 }}
	at.program = func(ctx context.Context) (string, error) { return s.program(ctx, b.say) }
	if d.used != nil {
		at.used = func() time.Duration { return d.used(s) }
	}
	return t.run(ctx, w, at, b.size)
}

// postgresTime is how much time on a core all processes of the server have used, or zero if that cannot be found
// out.
func (s *stage) postgresTime() (all time.Duration) {
	found, _ := filepath.Glob(filepath.Join(s.dir, "*", "data", "postmaster.pid"))
	for _, path := range found {
		text, _ := os.ReadFile(path)
		pid, _, _ := strings.Cut(string(text), "\n")
		children, _ := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
		for _, process := range append(strings.Fields(string(children)), pid) {
			all += cpuTime(process)
		}
	}
	return all
}

// stage takes the place of a test: the helpers for servers expect one.
type stage struct {
	testing.TB // nil: only the methods below are used
	dir        string
	files      int
	postgres   *databases.PostgreSQLServer
	mongo      *mongoServer
	built      string // our command; empty until it is built
	cleanups   []func()
}

// errStage is what ends a function that wanted to end the test.
type errStage struct{ text string }

func (e errStage) Error() string { return e.text }

// newStage makes a stage whose servers have their data below dir.
func newStage(dir string) (*stage, error) {
	s := &stage{dir: dir}
	before := os.Getenv("TMPDIR")
	if err := os.Setenv("TMPDIR", dir); err != nil { // where the servers make their folders
		return nil, err
	}
	s.Cleanup(func() { _ = os.Setenv("TMPDIR", before) }) // it could be set a moment ago
	if err := os.Chmod(dir, 0o755); err != nil {          // they run as another user than root
		s.end()
		return nil, err
	}
	return s, nil
}

// do returns as an error what would have ended a test.
func (s *stage) do(what func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case errStage:
			err = p
		default:
			panic(p)
		}
	}()
	what()
	return nil
}

func (s *stage) end() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	s.cleanups = nil
}

// file returns a path that does not exist yet.
func (s *stage) file() string {
	s.files++
	return filepath.Join(s.dir, fmt.Sprintf("file%d", s.files))
}

func (s *stage) Helper()                   {}
func (s *stage) Failed() bool              { return false }
func (s *stage) Logf(string, ...any)       {}
func (s *stage) Cleanup(f func())          { s.cleanups = append(s.cleanups, f) }
func (s *stage) Error(args ...any)         { fmt.Fprintln(os.Stderr, append([]any{"bench:"}, args...)...) }
func (s *stage) Fatal(args ...any)         { panic(errStage{fmt.Sprint(args...)}) }
func (s *stage) Fatalf(f string, a ...any) { panic(errStage{fmt.Sprintf(f, a...)}) }
func (s *stage) Skipf(f string, a ...any)  { panic(errStage{fmt.Sprintf(f, a...)}) }
