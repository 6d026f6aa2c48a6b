package claimtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

var troubleTests = []test{
	{"Corrupt", "", testCorrupt},
	{"Namespaces", "", testNamespaces},
	{"CancelledContext", "", testCancelledContext},
	{"AfterClose", "", testAfterClose},
	{"Scheme", "", testScheme},
}

// A record that cannot be read affects its own name alone.
func testCorrupt(s *suite) {
	if s.config.Damage == nil {
		s.Skip("the store under test offers no way to damage a record")
	}
	store := s.open()
	a, b, c := s.put(store, "a"), s.put(store, "b"), s.put(store, "c")
	s.config.Damage(s, s.namespace, "b")
	if f, err := store.Get(s.Context(), "b"); !errors.Is(err, backend.ErrCorrupt) {
		s.Errorf("Get of a damaged record: %+v, %v", f, err)
	}
	s.same("beside a damaged record", s.mustGet(store, "a").Record, a)
	s.same("beside a damaged record", s.mustGet(store, "c").Record, c)
	all, err := store.List(s.Context(), "", "", 10)
	if err != nil || len(all) != 3 {
		s.Fatalf("a list with a damaged record: %+v, %v", all, err)
	}
	for i, want := range []claim.Record{a, {Name: "b"}, c} {
		s.same("in a list with a damaged record", all[i].Record, want)
		if errors.Is(all[i].Err, backend.ErrCorrupt) != (want.Name == "b") {
			s.Errorf("in a list with a damaged record %s has the error %v", want.Name, all[i].Err)
		}
	}
	if done, err := store.Swap(s.Context(), claim.Swap{Record: record("b", 9)}); done || err != nil && !errors.Is(err, backend.ErrCorrupt) {
		s.Errorf("Swap created a record in place of a damaged one: done %v, error %v", done, err)
	}
	if !s.mustSwap(store, a.Op, record("a", 2)) {
		s.Error("beside a damaged record a write was refused")
	}
	if f, err := s.open().Get(s.Context(), b.Name); !errors.Is(err, backend.ErrCorrupt) {
		s.Errorf("another client reads a damaged record as %+v, %v", f, err)
	}
}

func testNamespaces(s *suite) {
	one, other := s.open(), s.openIn(newNamespace(), false)
	r := s.put(one, "jobs/x")
	s.mustObserve(one, "jobs/x", "d", r.Op, 100)
	if _, err := one.RaiseFloor(s.Context(), 50); err != nil {
		s.Fatal(err)
	}
	if f := s.mustGet(other, "jobs/x"); f.Record.Exists() || f.Floor != 0 {
		s.Errorf("a namespace has what is another's: %+v", f)
	}
	if names := s.namesIn(other, "", "", 10); len(names) != 0 {
		s.Errorf("a namespace lists what is another's: %q", names)
	}
	if done, err := other.Remove(s.Context(), "jobs/x", r.Op); done || err != nil {
		s.Errorf("from one namespace a record of another was removed: %v, %v", done, err)
	}
	if s.mustSwap(other, r.Op, record("jobs/x", 2)) {
		s.Error("from one namespace a record of another was written over")
	}
	same := r // even with the same op
	same.Token = 9
	if !s.mustSwap(other, claim.Op{}, same) {
		s.Error("a namespace cannot have a name that another has")
	}
	if got := s.mustObserve(other, "jobs/x", "d", r.Op, 200); got != 200 {
		s.Errorf("a namespace has what was observed in another: %d", got)
	}
	if c, ok := one.(claim.Clocks); ok {
		if err := c.Acknowledge(s.Context(), "d", clock.Instant{Raw: 1}); err != nil {
			s.Error(err)
		}
		if at, known, err := other.(claim.Clocks).Acknowledged(s.Context(), "d"); known || err != nil {
			s.Errorf("a namespace has a clock record of another: %v, %v", at, err)
		}
	}
	s.same("after writes in another namespace", s.mustGet(one, "jobs/x").Record, r)
	if f := s.mustGet(other, "jobs/x"); f.Floor != 0 || f.Record.Token != 9 {
		s.Errorf("a write in one namespace changed another, which has %+v", f)
	}
}

// calls are all calls of a store, each about its own name.
func calls(r claim.Record) map[string]func(context.Context, claim.Store) error {
	all := map[string]func(context.Context, claim.Store) error{
		"Get":  func(ctx context.Context, s claim.Store) error { _, err := s.Get(ctx, r.Name); return err },
		"List": func(ctx context.Context, s claim.Store) error { _, err := s.List(ctx, "", "", 10); return err },
		"Swap": func(ctx context.Context, s claim.Store) error {
			done, err := s.Swap(ctx, claim.Swap{Old: r.Op, Record: record(r.Name, 99)})
			return orDone(done, err)
		},
		"Observe": func(ctx context.Context, s claim.Store) error {
			_, err := s.Observe(ctx, r.Name, "d", r.Op, clock.Instant{Raw: 1})
			return err
		},
		"RaiseFloor": func(ctx context.Context, s claim.Store) error { _, err := s.RaiseFloor(ctx, 99); return err },
		"Remove": func(ctx context.Context, s claim.Store) error {
			done, err := s.Remove(ctx, r.Name, r.Op)
			return orDone(done, err)
		},
	}
	all["SwapAll"] = func(ctx context.Context, s claim.Store) error {
		if b, ok := s.(claim.Batcher); ok {
			_, err := b.SwapAll(ctx, []claim.Swap{{Old: r.Op, Record: record(r.Name, 99)}})
			return err
		}
		return all["Swap"](ctx, s)
	}
	all["Listen"] = func(ctx context.Context, s claim.Store) error {
		if n, ok := s.(claim.Notifier); ok {
			return n.Listen(ctx, func(string) {})
		}
		return all["Get"](ctx, s)
	}
	all["Acknowledge"] = func(ctx context.Context, s claim.Store) error {
		if c, ok := s.(claim.Clocks); ok {
			return c.Acknowledge(ctx, "d", clock.Instant{Raw: 1})
		}
		return all["Get"](ctx, s)
	}
	all["Acknowledged"] = func(ctx context.Context, s claim.Store) error {
		if c, ok := s.(claim.Clocks); ok {
			_, _, err := c.Acknowledged(ctx, "d")
			return err
		}
		return all["Get"](ctx, s)
	}
	return all
}

// reads are the calls that change nothing.
var reads = []string{"Get", "List", "Listen", "Acknowledged"}

var errDone = errors.New("it was done")

// orDone returns err, or an error that says that the call was done nevertheless.
func orDone(done bool, err error) error {
	if done {
		return errors.Join(errDone, err)
	}
	return err
}

// A call whose context has ended returns with an error. If the error says that nothing happened, that is true.
func testCancelledContext(s *suite) {
	store := s.open()
	r := s.put(store, "jobs/x")
	for _, cause := range []string{"cancelled", "too late"} {
		ctx, cancel := context.WithCancel(s.Context())
		if cause == "too late" {
			ctx, cancel = context.WithDeadline(s.Context(), time.Now().Add(-time.Second))
		}
		cancel()
		sure := true
		for name, call := range calls(r) { // order: each is a call of its own
			err := call(ctx, store)
			s.kind(name, err)
			if err == nil || errors.Is(err, errDone) {
				s.Errorf("%s with a context that is %s: %v", name, cause, err)
			}
			sure = sure && !errors.Is(err, backend.ErrUnknownOutcome)
			if slices.Contains(reads, name) && errors.Is(err, backend.ErrUnknownOutcome) {
				s.Errorf("%s changes nothing, and has no unknown outcome: %v", name, err)
			}
		}
		if !sure {
			return // each may have happened, or may still happen
		}
		if f := s.mustGet(store, "jobs/x"); f.Floor != 0 || f.Record.Op != r.Op {
			s.Errorf("with a context that is %s something was done: %+v", cause, f)
		}
	}
}

func testAfterClose(s *suite) {
	store, other := s.open(), s.open()
	r := s.put(store, "jobs/x")
	for range 2 { // closing again is allowed
		if err := store.Close(s.Context()); err != nil {
			s.Fatalf("Close: %v", err)
		}
	}
	for name, call := range calls(r) { // order: none of them does anything
		if err := call(s.Context(), store); !errors.Is(err, backend.ErrClosed) || errors.Is(err, errDone) {
			s.Errorf("%s after Close: %v", name, err)
		}
	}
	if f := s.mustGet(other, "jobs/x"); f.Floor != 0 || f.Record.Op != r.Op {
		s.Errorf("after Close something was done: %+v", f)
	}
	s.same("in a client that is not closed", s.mustGet(other, "jobs/x").Record, r)
	s.same("in a client that was opened later", s.mustGet(s.open(), "jobs/x").Record, r)
}

func testScheme(s *suite) {
	if a, b := s.open().Scheme(), s.open().Scheme(); a == "" || a != b {
		s.Errorf("two clients of one store call themselves %q and %q", a, b)
	}
}
