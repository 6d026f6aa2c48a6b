package claimtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// The optional abilities of a store, for [Config.Cannot].
const (
	Batch  = "batch"  // [claim.Batcher]
	Gather = "gather" // [claim.Gatherer]
	Bound  = "bound"  // [claim.Bounded]
	Notify = "notify" // [claim.Notifier]
	Judge  = "judge"  // [claim.Judge], and store-clock mode
	Local  = "local"  // [claim.Local]
	Clocks = "clocks" // [claim.Clocks]
	Queue  = "queue"  // [claim.Queuer], and [claim.Queues] here
)

// Config says what to test.
type Config struct {
	// Open returns a new client of a namespace, as if of another process. It creates the namespace if there is
	// none; storeClock is its mode. The suite closes the client. It uses a namespace for each test, named in
	// letters, digits and hyphens.
	Open func(t testing.TB, namespace string, storeClock bool) (claim.Store, error)
	// Cannot lists the abilities that the store lacks, such as [Batch]. The suite checks that it really lacks
	// them.
	Cannot []string
	// Precision is the unit to which the store rounds wall-clock times, up or down. Zero says that it keeps
	// nanoseconds.
	Precision time.Duration
	// Damage makes a record unreadable, without using the store. It may be nil: the test that needs it is then
	// skipped.
	Damage func(t testing.TB, namespace, name string)
	// OtherBoot is a domain of an earlier boot of this machine, for stores that are [Local].
	OtherBoot clock.Domain
	// Slack is how late a hint of [claim.Notifier] may come. The default is five seconds.
	Slack time.Duration
	// Serial runs tests one after the other.
	Serial bool
}

// test is one test of the suite.
type test struct {
	name string
	what string // the ability that the test needs; empty: none
	run  func(s *suite)
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	if c.Slack == 0 {
		c.Slack = 5 * time.Second
	}
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Record", recordTests},
		{"Swap", swapTests},
		{"List", listTests},
		{"Observe", observationTests},
		{"Floor", floorTests},
		{"Trouble", troubleTests},
		{"Optional", optionalTests},
		{"Queue", queueTests},
		{"Lease", leaseTests},
		{"Fault", faultTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					if !c.Serial {
						t.Parallel()
					}
					c.runTest(t, test)
				})
			}
		})
	}
}

func (c Config) runTest(t *testing.T, what test) {
	s := &suite{TB: t, config: c, namespace: newNamespace()}
	if slices.Contains(c.Cannot, what.what) {
		if can(s.open(), what.what) {
			t.Errorf("the store can do %q, and is said not to", what.what)
		}
		return
	}
	what.run(s)
}

// can reports whether a store has an optional ability.
func can(s claim.Store, what string) (ok bool) {
	switch what {
	case Batch:
		_, ok = s.(claim.Batcher)
	case Gather:
		_, ok = s.(claim.Gatherer)
	case Bound:
		_, ok = s.(claim.Bounded)
	case Notify:
		_, ok = s.(claim.Notifier)
	case Judge:
		_, ok = s.(claim.Judge)
	case Local:
		_, ok = s.(claim.Local)
	case Clocks:
		_, ok = s.(claim.Clocks)
	case Queue:
		ok = hasQueues(s)
	}
	return ok
}

// hasQueues reports whether a store keeps queues where it runs.
func hasQueues(s claim.Store) bool {
	q, ok := s.(claim.Queuer)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	queues, err := q.Queues(ctx)
	if err == nil {
		queues.Close(ctx)
	}
	return !errors.Is(err, backend.ErrUnsupported)
}

// suite is the state of one test.
type suite struct {
	testing.TB
	config    Config
	namespace string
}

func newNamespace() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return "claimtest-" + hex.EncodeToString(b)
}

// open returns a new client of the test's namespace.
func (s *suite) open() claim.Store {
	s.Helper()
	return s.openIn(s.namespace, false)
}

// openIn returns a new client of a namespace.
func (s *suite) openIn(namespace string, storeClock bool) claim.Store {
	s.Helper()
	store, err := s.config.Open(s, namespace, storeClock)
	if err != nil {
		s.Fatalf("open namespace %s: %v", namespace, err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := store.Close(ctx); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return store
}

// as returns the store as one with an optional ability.
func as[T any](s *suite, store claim.Store, what string) T {
	s.Helper()
	t, ok := store.(T)
	if !ok {
		s.Fatalf("the store cannot do %q, and is not said so: list it in Config.Cannot", what)
	}
	return t
}

// mustGet returns what the store returns for a name.
func (s *suite) mustGet(store claim.Store, name string) claim.Found {
	s.Helper()
	f, err := store.Get(s.Context(), name)
	if err != nil {
		s.Fatalf("Get(%q): %v", name, err)
	}
	if f.Record.Exists() && f.Record.Name != name {
		s.Fatalf("Get(%q) tells of %q", name, f.Record.Name)
	}
	return f
}

// exists reports whether a name has a record.
func (s *suite) exists(store claim.Store, name string) bool {
	s.Helper()
	f := s.mustGet(store, name)
	return f.Record.Exists()
}

// mustSwap does one conditional write, and reports whether it was done.
func (s *suite) mustSwap(store claim.Store, old claim.Op, r claim.Record) bool {
	s.Helper()
	done, err := store.Swap(s.Context(), claim.Swap{Old: old, Record: r, Owner: true})
	if err != nil {
		s.Fatalf("Swap of %q: %v", r.Name, err)
	}
	return done
}

// put creates a small record of a name that has none, and returns it.
func (s *suite) put(store claim.Store, name string) claim.Record {
	s.Helper()
	r := record(name, 1)
	if !s.mustSwap(store, claim.Op{}, r) {
		s.Fatalf("the first Swap of %q, which has no record, was not done", name)
	}
	return r
}

// record returns a record with a holder, and a new op.
func record(name string, t backend.Token) claim.Record {
	return claim.Record{
		Name: name, Holder: "someone", Token: t, Op: claim.NewOp(), Incarnation: backend.ID(claim.NewOp()),
		Domain: "some machine", Written: clock.Instant{Raw: 10, Boot: 20}, Expiry: clock.Instant{Raw: 30, Boot: 40},
		TTL: 20,
	}
}

// same fails unless two records are equal, up to the precision of the store's wall-clock times.
func (s *suite) same(what string, got, want claim.Record) {
	s.Helper()
	got, want = normalized(got), normalized(want)
	is := timesOf(&got)
	for i, should := range timesOf(&want) {
		if i < len(is) && is[i].IsZero() == should.IsZero() && is[i].Sub(*should).Abs() < s.config.Precision {
			*is[i] = *should
		}
	}
	if !reflect.DeepEqual(got, want) {
		s.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
}

// normalized returns the one form of all records that mean the same.
func normalized(r claim.Record) claim.Record {
	r = copied(r)
	if len(r.Pins) == 0 {
		r.Pins = nil
	}
	if len(r.Past) == 0 {
		r.Past = nil
	}
	return r
}

// together runs do(0) to do(n-1) at the same time, and waits for all of them.
func together(n int, do func(i int)) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-begin
			do(i)
		})
	}
	close(begin)
	all.Wait()
}

// kinds are all kinds of errors that a store may return.
var kinds = []error{backend.ErrUnknownOutcome, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrUnavailable,
	backend.ErrClosed, context.Canceled, context.DeadlineExceeded}

// kind fails unless an error is of a known kind.
func (s *suite) kind(what string, err error) {
	s.Helper()
	if err != nil && !slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(err, k) }) {
		s.Errorf("%s: an error of no kind: %v", what, err)
	}
}
