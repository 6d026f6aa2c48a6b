package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// keeperTests are about a keeper on a backend.
var keeperTests = []test{
	{name: "KeeperHoldsAndReleases", run: testKeeperHolds},
	{name: "KeeperLearnsTheHolder", run: testKeeperHeld},
	{name: "KeeperKeepsManyLeases", ends: true, run: testKeeperKeeps},
	{name: "KeeperOnASlowStoreLosesNoLease", ends: true, run: testKeeperSlow},
	{name: "KeeperWaitsInTheQueue", ends: true, run: testKeeperQueue},
	{name: "KeeperLeavesTheQueue", run: testKeeperLeaves},
	{name: "GoroutinesOfOneKeeperTakeTurns", run: testKeeperTurns},
	{name: "DisconnectedKeeperStopsBeforeTheNextBegins", ends: true, run: testKeeperCutOff},
	{name: "KeeperNoticesADeletedRecord", deletes: true, ends: true, run: testKeeperDeleted},
	{name: "ClosedKeeperReleases", run: testKeeperClosed},
	{name: "KeepersExcludeEachOther", run: testKeepersExclude},
	{name: "CampaignHasOneLeader", run: testCampaign},
	{name: "KeeperWatches", what: backend.Watch, run: testKeeperWatch},
	{name: "ElectorObservesItsLeader", what: backend.Watch, run: testElector},
	{name: "LeaderAnnounces", what: backend.Announce, run: testKeeperAnnounce},
	{name: "KeeperResumes", what: backend.Resume, ends: true, run: testKeeperResume},
	{name: "RevokedLeaseEnds", what: backend.Revoke, ends: true, run: testKeeperRevoked},
}

// keeper returns a keeper on a client of its own.
func (s *suite) keeper(id string) *leasekeeper.Keeper {
	s.Helper()
	return s.keeperOn(s.store.Open(s), id)
}

func (s *suite) keeperOn(b backend.Backend, id string, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	s.Helper()
	k, err := leasekeeper.New(b, append(o, leasekeeper.WithHolder(id), leasekeeper.WithTTL(s.ttl))...)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*s.longest())
		defer cancel()
		if err := k.Shutdown(ctx); err != nil && !errors.Is(err, backend.ErrUnknownOutcome) {
			s.Errorf("%s is closed: %v", id, err)
		}
	})
	return k
}

// must fails if there is an error, and returns the lease.
func (s *suite) must(l *leasekeeper.Lease, err error) *leasekeeper.Lease {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
	if err := l.Check(); err != nil || l.Token() == 0 || l.Context().Err() != nil || l.Remaining() <= 0 || l.Remaining() > l.TTL() {
		s.Fatalf("%v was just acquired: %v, remaining %v of %v", l, err, l.Remaining(), l.TTL())
	}
	return l
}

// gone fails unless a lease has ended.
func (s *suite) gone(l *leasekeeper.Lease) {
	s.Helper()
	s.is("Check", l.Check(), backend.ErrLost)
	s.is("the cause", context.Cause(l.Context()), backend.ErrLost)
	if l.Remaining() > 0 || l.Context().Err() == nil {
		s.Errorf("%v is over: remaining %v", l, l.Remaining())
	}
}

func testKeeperHolds(s *suite) {
	k, name := s.keeper("a"), s.name("x")
	l := s.must(k.TryAcquire(s.Context(), name, leasekeeper.WithCard("hello")))
	if l.Name() != name || l.TTL() < s.ttl || l.Holder().ID != "a" || l.Raw().Name() != name {
		s.Errorf("%v: %v, %v, %v", l, l.TTL(), l.Holder(), l.Raw())
	}
	i, err := k.Get(s.Context(), name)
	if err != nil || !i.Held || i.Token != l.Token() || i.Holder.ID != "a" || i.Holder.Card.Text != "hello" {
		s.Errorf("Get: %+v, %v", i, err)
	}
	for range 2 {
		if err := l.Release(s.Context()); err != nil {
			s.Errorf("Release: %v", err)
		}
		s.gone(l)
	}
	if i, err := k.Get(s.Context(), name); err != nil || i.Held {
		s.Errorf("released: %+v, %v", i, err)
	}
	again := s.must(k.TryAcquire(s.Context(), name))
	if again.Token() <= l.Token() {
		s.Errorf("token %d after %d", again.Token(), l.Token())
	}
}

func testKeeperHeld(s *suite) {
	a, twin, name := s.keeper("a"), s.keeper("a"), s.name("x")
	l := s.must(a.Acquire(s.Context(), name))
	for _, c := range []struct {
		k    *leasekeeper.Keeper
		self bool
	}{{a, true}, {twin, false}} {
		_, err := c.k.TryAcquire(s.Context(), name)
		var held *backend.HeldError
		if !errors.As(err, &held) || held.Self != c.self || held.Token != l.Token() || held.Holder.ID != "a" {
			s.Errorf("self %v: %v", c.self, err)
		}
	}
	_, err := a.Acquire(l.Context(), name)
	s.is("Acquire under the lease of that name", err, backend.ErrHeld)
}

func testKeeperKeeps(s *suite) {
	k := s.keeper("a")
	leases := make([]*leasekeeper.Lease, 20)
	for i := range leases {
		leases[i] = s.must(k.Acquire(s.Context(), s.name(fmt.Sprint("keep/", i))))
	}
	for end := time.Now().Add(3 * s.ttl); time.Now().Before(end); time.Sleep(s.ttl / 10) {
		for _, l := range leases {
			if err := l.Check(); err != nil {
				s.Fatal(err)
			}
		}
	}
	n := 0
	for i, err := range k.List(s.Context(), s.name("keep/")) {
		if err != nil || !i.Held || i.Holder.ID != "a" {
			s.Errorf("%+v, %v", i, err)
		}
		n++
	}
	if n != len(leases) {
		s.Errorf("%d are listed of %d", n, len(leases))
	}
}

func testKeeperQueue(s *suite) {
	name := s.name("x")
	l := s.must(s.keeper("first").Acquire(s.Context(), name))
	turns := make(chan *leasekeeper.Lease, 1)
	go func() {
		got, err := s.keeper("second").Acquire(s.Context(), name)
		s.kind("Acquire", err)
		turns <- got
	}()
	time.Sleep(2 * s.ttl) // longer than an unrenewed place in the queue lasts
	select {
	case got := <-turns:
		s.Fatalf("%v is held by two", got)
	default:
	}
	token := l.Token()
	if err := l.Release(s.Context()); err != nil {
		s.Fatal(err)
	}
	if got := <-turns; got == nil || got.Check() != nil || got.Token() <= token {
		s.Errorf("after token %d: %v", token, got)
	}
}

func testKeeperLeaves(s *suite) {
	a, b, c, name := s.keeper("a"), s.keeper("b"), s.keeper("c"), s.name("x")
	l := s.must(a.Acquire(s.Context(), name))
	ctx, cancel := context.WithTimeout(s.Context(), s.short/2)
	defer cancel()
	_, err := b.Acquire(ctx, name)
	s.is("Acquire", err, context.DeadlineExceeded)
	if err := l.Release(s.Context()); err != nil {
		s.Fatal(err)
	}
	start := time.Now()
	s.must(c.Acquire(s.Context(), name))
	if took := time.Since(start); took > s.ttl {
		s.Errorf("who had given up waiting stood in the way for %v", took)
	}
}

// cutOff is a client whose connection can be made to swallow all requests.
type cutOff struct {
	backend.Backend
	open chan struct{} // closed when it is cut off
}

// cutClocked is such a client of a backend with clocks of its own.
type cutClocked struct {
	*cutOff
	backend.Clocked
}

func (s *suite) cuttable() (b backend.Backend, off func()) {
	c := &cutOff{s.store.Open(s), make(chan struct{})}
	off = sync.OnceFunc(func() { close(c.open) })
	if clocked, ok := c.Backend.(backend.Clocked); ok {
		return cutClocked{c, clocked}, off
	}
	return c, off
}

// hole returns at once while the connection works, otherwise when ctx ends.
func (c *cutOff) hole(ctx context.Context) error {
	select {
	case <-c.open:
		<-ctx.Done()
		return fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, ctx.Err())
	default:
		return nil
	}
}

func (c *cutOff) Renew(ctx context.Context, leases []backend.Lease, report func(int, backend.Renewal)) error {
	if err := c.hole(ctx); err != nil {
		return err
	}
	return c.Backend.Renew(ctx, leases, report)
}

func (c *cutOff) Release(ctx context.Context, l backend.Lease) error {
	if err := c.hole(ctx); err != nil {
		return err
	}
	return c.Backend.Release(ctx, l)
}

func testKeeperCutOff(s *suite) {
	client, off := s.cuttable()
	a, b, name := s.keeperOn(client, "a"), s.keeper("b"), s.name("x")
	l := s.must(a.Acquire(s.Context(), name))
	off()
	next, err := b.Acquire(s.Context(), name)
	ended, check := l.Context().Err(), l.Check()
	next = s.must(next, err)
	if check == nil {
		s.Error("two hold it at once")
	}
	// In real time the goroutine that ends contexts may not have run for a moment. Check needs none.
	if ended == nil && s.config.Bubble {
		s.Error("b holds it, and a's context goes on")
	}
	if next.Token() <= l.Token() {
		s.Errorf("token %d after %d", next.Token(), l.Token())
	}
	s.gone(l)
	s.is("Release of what was lost", l.Release(s.Context()), backend.ErrLost)
}

func testKeeperDeleted(s *suite) {
	a, name := s.keeper("a"), s.name("x")
	l := s.must(a.Acquire(s.Context(), name))
	s.store.Delete(s, name)
	start := time.Now()
	<-l.Context().Done()
	if took := time.Since(start); took > s.ttl/2+s.late() {
		s.Errorf("noticed after %v", took)
	}
	s.gone(l)
	s.must(a.TryAcquire(s.Context(), name))
}

func testKeeperClosed(s *suite) {
	a, b := s.keeper("a"), s.keeper("b")
	held := s.must(a.Acquire(s.Context(), s.name("held")))
	other := s.must(b.Acquire(s.Context(), s.name("other")))
	waited := make(chan error)
	go func() {
		_, err := a.Acquire(s.Context(), other.Name())
		waited <- err
	}()
	time.Sleep(s.short / 10)
	if err := a.Shutdown(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.gone(held)
	s.is("Acquire", <-waited, backend.ErrClosed)
	s.must(b.TryAcquire(s.Context(), held.Name()))
	if i, err := b.Get(s.Context(), other.Name()); err != nil || i.Waiting > 0 {
		s.Errorf("who waited was closed: %+v, %v", i, err)
	}
	_, err := a.TryAcquire(s.Context(), s.name("late"))
	s.is("TryAcquire", err, backend.ErrClosed)
}

func testKeepersExclude(s *suite) {
	name := s.name("x")
	var inside, runs atomic.Int32
	var last atomic.Uint64
	var all sync.WaitGroup
	for n := range 4 {
		k := s.keeper(fmt.Sprint("k", n))
		all.Go(func() {
			for range 5 {
				err := k.Run(s.Context(), name, func(ctx context.Context, l *leasekeeper.Lease) error {
					if inside.Add(1) != 1 || last.Swap(uint64(l.Token())) >= uint64(l.Token()) {
						s.Errorf("%d inside, token %d", inside.Load(), l.Token())
					}
					runs.Add(1)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					s.Errorf("Run: %v", err)
				}
			}
		})
	}
	all.Wait()
	if runs.Load() != 20 {
		s.Errorf("%d runs", runs.Load())
	}
}

func testKeeperWatch(s *suite) {
	a, b, name := s.keeper("a"), s.keeper("b"), s.name("watch/x")
	l := s.must(a.Acquire(s.Context(), name))
	var kinds []backend.EventKind
	for e, err := range b.Watch(s.Context(), s.name("watch/")) {
		if err != nil || e.Info.Name != name {
			s.Fatalf("%+v, %v", e, err)
		}
		kinds = append(kinds, e.Kind)
		if e.Kind == backend.Vacated {
			break
		}
		if e.Kind == backend.Resync && len(kinds) == 1 {
			if err := l.Release(s.Context()); err != nil {
				s.Fatal(err)
			}
		}
	}
	if kinds[0] != backend.Resync {
		s.Errorf("events: %v", kinds)
	}
}

func testKeeperAnnounce(s *suite) {
	a, name := s.keeper("a"), s.name("x")
	l := s.must(a.Acquire(s.Context(), name))
	if err := l.Announce(s.Context(), "10.0.0.1:80"); err != nil {
		s.Fatal(err)
	}
	i, err := s.keeper("b").Get(s.Context(), name)
	if err != nil || i.Holder.Card.Text != "10.0.0.1:80" || l.Holder().Card.Text != "10.0.0.1:80" {
		s.Errorf("%+v, %v; %+v", i, err, l.Holder())
	}
	if err := l.Release(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.is("Announce", l.Announce(s.Context(), "x"), backend.ErrLost)
}

func testKeeperResume(s *suite) {
	client, off := s.cuttable()
	a, b, name := s.keeperOn(client, "a"), s.keeper("b"), s.name("x")
	l := s.must(a.Acquire(s.Context(), name))
	off()
	_, err := b.Resume(s.Context(), name, l.Token()+1)
	s.is("Resume with another token", err, backend.ErrLost)
	resumed := s.must(b.Resume(s.Context(), name, l.Token()))
	if resumed.Token() != l.Token() {
		s.Errorf("resumed %v as %v", l, resumed)
	}
	time.Sleep(2 * s.ttl)
	s.gone(l)
	if err := resumed.Check(); err != nil {
		s.Error(err)
	}
	if err := resumed.Release(s.Context()); err != nil {
		s.Error(err)
	}
}

func testKeeperRevoked(s *suite) {
	s.ttl *= 3 // time must be left when a renewal is refused
	a, c, name := s.keeper("a"), s.claimer("operator"), s.name("x")
	l := s.must(a.Acquire(s.Context(), name))
	if err := can[backend.Revoker](c).Revoke(s.Context(), name, l.Token(), "it hangs", false); err != nil {
		s.Fatal(err)
	}
	// The context ends as soon as a renewal is refused, long before the name is free.
	<-l.Context().Done()
	s.gone(l)
	if i := c.info(name); !i.Held || i.Token != l.Token() {
		s.Errorf("when the holder has stopped: %+v", i)
	}
	s.must(s.keeper("b").Acquire(s.Context(), name))
}
