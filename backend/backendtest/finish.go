package backendtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// finishTests are about marks, releases that leave something behind, and the order of those who wait.
var finishTests = []test{
	{name: "HolderRaisesTheMark", what: backend.Marks, run: testMark},
	{name: "MarkIsReplacedOnCondition", what: backend.Marks, run: testReplaceMark},
	{name: "LostLeaseRaisesNoMark", what: backend.Marks, ends: true, run: testLostMark},
	{name: "FinishRecordsTheTickWithTheRelease", what: backend.Finishes, run: testFinish},
	{name: "FinishOfALostLeaseRecordsNothing", what: backend.Finishes, ends: true, run: testLostFinish},
	{name: "FinishHoldsTheNameOn", what: backend.Finishes, ends: true, run: testHoldOn},
	{name: "HighestPriorityIsNext", run: testPriority},
	{name: "PreferredWaiterIsNext", what: backend.Prefer, run: testPrefer},
	{name: "TransferGivesTheNameToTheChosenWaiter", what: backend.Prefer, ends: true, run: testTransferTo},
	{name: "TickIsCompletedOnce", what: backend.Marks, run: testOnce},
	{name: "NameStaysTakenForTheLeastTime", what: backend.Finishes, ends: true, run: testHoldAtLeast},
}

// mark returns the mark of a name.
func (c *claimer) mark(name string) backend.Mark {
	c.Helper()
	m, err := can[backend.Marker](c).Mark(c.Context(), name)
	if err != nil {
		c.Fatalf("the mark of %s: %v", name, err)
	}
	return m
}

// marked fails unless the mark of a name is that of the tick and the token.
func (c *claimer) marked(name string, tick int64, token backend.Token) {
	c.Helper()
	if got, want := c.mark(name), (backend.Mark{Tick: backend.TickNumber(tick), Token: token}); got != want {
		c.Errorf("the mark of %s is %+v, want %+v", name, got, want)
	}
}

func testMark(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("mark")
	m := can[backend.Marker](a)
	if got := a.mark(name); !got.IsZero() {
		s.Errorf("of a name that was never held: %+v", got)
	}
	l, g := a.hold(name)
	other, _ := a.hold(s.name("other"))
	waiting := b.wait(name)
	for _, n := range []int64{5, 5, 4} {
		if err := m.RaiseMark(s.Context(), l, backend.TickNumber(n)); err != nil {
			s.Fatal(err)
		}
		b.marked(name, 5, g.Token)
	}
	s.is("a time after a number", m.RaiseMark(s.Context(), l, backend.TickAt(time.Unix(1, 0))), backend.ErrInvalid)
	s.is("no tick", m.RaiseMark(s.Context(), l, backend.Tick{}), backend.ErrInvalid)
	s.is("the mark of a waiter", can[backend.Marker](b).RaiseMark(s.Context(), waiting, backend.TickNumber(6)), backend.ErrLost)
	if got := a.mark(other.Name()); !got.IsZero() {
		s.Errorf("another name has the mark %+v", got)
	}
	if i := a.info(name); !i.Held || i.Token != g.Token {
		s.Errorf("the holder of %s after it has raised the mark: %+v", name, i)
	}
	a.keep(s.short/2, l)
	a.release(l)
	s.is("the mark after the release", m.RaiseMark(s.Context(), l, backend.TickNumber(6)), backend.ErrLost)
	next := b.await(waiting)
	b.marked(name, 5, g.Token)
	if err := can[backend.Marker](b).RaiseMark(s.Context(), waiting, backend.TickNumber(7)); err != nil {
		s.Fatal(err)
	}
	b.release(waiting)
	a.marked(name, 7, next.Token)
}

func testReplaceMark(s *suite) {
	a, name := s.claimer("a"), s.name("replace")
	m := can[backend.Marker](a)
	noon := backend.Mark{Tick: backend.TickAt(time.Unix(1700000000, 1))}
	replace := func(old, replacement backend.Mark, want bool) {
		s.Helper()
		if done, err := m.ReplaceMark(s.Context(), name, old, replacement); err != nil || done != want {
			s.Errorf("%+v replaces %+v: %v, %v", replacement, old, done, err)
		}
	}
	replace(noon, backend.Mark{}, false)
	replace(backend.Mark{}, noon, true)
	replace(backend.Mark{}, noon, false)
	if got := a.mark(name); got != noon {
		s.Errorf("the mark is %+v, not %+v", got, noon)
	}
	l, g := a.hold(name) // a holder changes nothing
	if got := a.mark(name); got != noon {
		s.Errorf("claimed, the mark is %+v, not %+v", got, noon)
	}
	replace(noon, backend.Mark{}, true)
	if err := m.RaiseMark(s.Context(), l, backend.TickNumber(3)); err != nil { // its kind is free again
		s.Fatal(err)
	}
	a.marked(name, 3, g.Token)
	a.keep(s.short/2, l)
	a.release(l)
	_, err := m.Mark(s.Context(), "//")
	s.is("the mark of an illegal name", err, backend.ErrInvalid)
	_, err = m.ReplaceMark(s.Context(), "//", backend.Mark{}, noon)
	s.is("replacing the mark of an illegal name", err, backend.ErrInvalid)
}

func testLostMark(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("lost-mark")
	l, _ := a.hold(name)
	s.eventually("the end of a lease that is not renewed", func() bool { return !b.info(name).Held })
	s.is("a raises the mark", can[backend.Marker](a).RaiseMark(s.Context(), l, backend.TickNumber(1)), backend.ErrLost)
	if got := b.mark(name); !got.IsZero() {
		s.Errorf("a lost lease has raised the mark to %+v", got)
	}
}

func testFinish(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("finish")
	f, finish := can[backend.Finisher](a), backend.Finish{Tick: backend.TickNumber(1)}
	l, g := a.hold(name)
	waiting := b.wait(name)
	s.is("b finishes while it waits", can[backend.Finisher](b).Finish(s.Context(), waiting, finish), backend.ErrLost)
	b.release(waiting)
	if err := f.Finish(s.Context(), l, finish); err != nil {
		s.Fatal(err)
	}
	a.marked(name, 1, g.Token)
	s.is("a renews", a.renew(l)[0].Err, backend.ErrLost)
	held, next := b.hold(name)
	if next.Token <= g.Token {
		s.Errorf("token %d after %d", next.Token, g.Token)
	}
	for range 2 { // a repeated request
		if err := f.Finish(s.Context(), l, finish); err != nil {
			s.Errorf("the same finish again: %v", err)
		}
	}
	a.marked(name, 1, g.Token)
	if i := a.info(name); !i.Held || i.Token != next.Token {
		s.Errorf("a repeated finish has ended the next tenure: %+v", i)
	}
	if err := can[backend.Finisher](b).Finish(s.Context(), held, backend.Finish{}); err != nil {
		s.Errorf("a finish that leaves nothing behind: %v", err)
	}
	if i := a.info(name); i.Held {
		s.Errorf("finished, and still held: %+v", i)
	}
	a.marked(name, 1, g.Token)
}

func testLostFinish(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("lost-finish")
	l, _ := a.hold(name)
	s.eventually("the end of a lease that is not renewed", func() bool { return !b.info(name).Held })
	finish := backend.Finish{Tick: backend.TickNumber(1)}
	s.is("a finishes", can[backend.Finisher](a).Finish(s.Context(), l, finish), backend.ErrLost)
	if b.mark(name) != (backend.Mark{}) {
		s.Errorf("a lost lease has left the mark %+v", b.mark(name))
	}
	next, g := b.hold(name)
	if err := can[backend.Finisher](b).Finish(s.Context(), next, finish); err != nil {
		s.Fatal(err)
	}
	s.is("a finishes what b has finished", can[backend.Finisher](a).Finish(s.Context(), l, finish), backend.ErrLost)
	a.marked(name, 1, g.Token)
}

func testHoldOn(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("hold-on")
	f, finish := can[backend.Finisher](a), backend.Finish{Hold: s.ttl}
	if err := f.CheckHold(s.ttl, finish.Hold); err != nil {
		s.Fatal(err)
	}
	if err := f.CheckHold(s.ttl, a.Limits().MaxTTL+time.Hour); !errors.Is(err, backend.ErrInvalid) && !errors.Is(err, backend.ErrUnsupported) {
		s.Errorf("to be held for longer than the longest TTL: %v", err)
	}
	l, g := a.hold(name)
	start := time.Now()
	for range 2 {
		if err := f.Finish(s.Context(), l, finish); err != nil {
			s.Fatal(err)
		}
		s.is("a renews", a.renew(l)[0].Err, backend.ErrLost)
		if i := b.info(name); !i.Held || i.Token != g.Token || i.Holder.ID != "a" {
			s.Errorf("finished, but to be held on: %+v", i)
		}
	}
	a.release(l) // changes nothing: it was released
	b.refused(name, a, g.Token)
	var next backend.Grant
	s.eventually("the end of the time for which it is held on", func() bool {
		var err error
		_, next, err = b.Claim(s.Context(), b.request(name, false))
		return err == nil
	})
	if held := time.Since(start); held < finish.Hold {
		s.Errorf("held on for %v, not %v", held, finish.Hold)
	}
	if next.Token <= g.Token {
		s.Errorf("token %d after %d", next.Token, g.Token)
	}
}

func testPriority(s *suite) {
	a, name := s.claimer("a"), s.name("priority")
	if !a.Limits().Priorities {
		_, err := s.keeper("k").TryAcquire(s.Context(), name, leasekeeper.WithPriority(1))
		s.is("a claim with a priority", err, backend.ErrUnsupported)
		return
	}
	l, g := a.hold(name)
	priorities := []backend.Priority{0, 5, -1, 5, 6}
	who, leases := make([]*claimer, len(priorities)), make([]backend.Lease, len(priorities))
	for i, p := range priorities {
		who[i] = s.claimer(string(rune('p' + i)))
		claim := who[i].request(name, true)
		claim.Priority = p
		var err error
		if leases[i], _, err = who[i].Claim(s.Context(), claim); err != nil {
			s.Fatal(err)
		}
		if i := a.info(name); i.Token != g.Token {
			s.Errorf("a waiter has ended the tenure: %+v", i)
		}
	}
	s.inOrder(a, l, g.Token, who, leases, []int{4, 1, 3, 0, 2})
}

// inOrder releases a name that a holds, and lets the waiters have it one after another.
func (s *suite) inOrder(a *claimer, l backend.Lease, last backend.Token, who []*claimer, leases []backend.Lease, order []int) {
	s.Helper()
	a.release(l)
	for _, i := range order {
		got := who[i].await(leases[i])
		if got.Token <= last {
			s.Errorf("waiter %d has token %d after %d", i, got.Token, last)
		}
		if now := a.info(l.Name()); now.Token != got.Token || now.Holder.ID != who[i].who.ID {
			s.Errorf("it is the turn of %s: %+v", who[i].who.ID, now)
		}
		last = got.Token
		who[i].release(leases[i])
	}
}

// preferred prefers a waiter as soon as it is in the queue, where a store learns that later than its claim.
func (s *suite) preferred(a *claimer, name, to string) {
	s.Helper()
	s.eventually(to+" is in the queue", func() bool {
		err := can[backend.Preferrer](a).Prefer(s.Context(), name, to)
		if err != nil && !errors.Is(err, backend.ErrInvalid) {
			s.Fatalf("%s is preferred: %v", to, err)
		}
		return err == nil
	})
}

func testTransferTo(s *suite) {
	name, operator := s.name("transfer-to"), s.claimer("operator")
	a, b, c := s.keeper("a"), s.keeper("b"), s.keeper("c")
	l := s.must(a.Acquire(s.Context(), name))
	acquire := func(k *leasekeeper.Keeper) <-chan *leasekeeper.Lease {
		got := make(chan *leasekeeper.Lease, 1)
		go func() {
			l, err := k.Acquire(s.Context(), name)
			if err != nil && s.Context().Err() == nil {
				s.Errorf("a waiter: %v", err)
			}
			got <- l
		}()
		return got
	}
	ofB, ofC := acquire(b), acquire(c)
	for _, to := range []string{"c", "b"} { // so b is the first
		s.preferred(operator, name, to)
	}
	s.is("a waiter that does not exist", a.Transfer(s.Context(), name, "stranger"), leasekeeper.ErrInvalid)
	if err := l.Check(); err != nil {
		s.Errorf("refused, and the lease has ended: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Transfer(s.Context(), name, "c") }()
	<-l.Context().Done()
	if err := l.Release(s.Context()); err != nil {
		s.Error(err)
	}
	if err := <-done; err != nil {
		s.Errorf("Transfer by the holder: %v", err)
	}
	var next *leasekeeper.Lease
	select {
	case next = <-ofC:
	case other := <-ofB:
		s.Fatalf("the name went to %v", other)
	}
	if next == nil || next.Token() <= l.Token() {
		s.Fatalf("transferred, and then %v after %v", next, l)
	}
	if err := b.Transfer(s.Context(), name, "b"); err != nil { // it revokes the lease of c, and waits for its turn
		s.Fatal(err)
	}
	<-next.Context().Done()
	if last := <-ofB; last == nil || last.Token() <= next.Token() {
		s.Errorf("transferred by another, and then %v after %v", last, next)
	} else if err := last.Release(s.Context()); err != nil {
		s.Error(err)
	}
}

func testPrefer(s *suite) {
	a, name := s.claimer("a"), s.name("prefer")
	p := can[backend.Preferrer](a)
	s.is("a name that was never held", p.Prefer(s.Context(), name, "w2"), backend.ErrInvalid)
	l, g := a.hold(name)
	who, leases := s.waiters(name, 4)
	for _, to := range []string{"a", "stranger", ""} {
		s.is("a waiter that does not exist", p.Prefer(s.Context(), name, to), backend.ErrInvalid)
	}
	turns := s.awaitAll(who, leases)
	for _, c := range who {
		s.preferred(a, name, c.who.ID)
		a.renew(l)
	}
	for _, to := range []string{"w3", "w2"} {
		if err := p.Prefer(s.Context(), name, to); err != nil {
			s.Fatal(err)
		}
		if i := a.info(name); i.Token != g.Token || i.Holder.ID != "a" {
			s.Errorf("%s is preferred, and the tenure has ended: %+v", to, i)
		}
	}
	turns.inOrder(a, l, g.Token, []int{2, 3, 1, 0})
}

// turns are waiters that await their turns in the background.
type turns struct {
	*suite
	who    []*claimer
	leases []backend.Lease
	got    []chan backend.Grant
}

// awaitAll makes all waiters await their turns, and keeps their places until then.
func (s *suite) awaitAll(who []*claimer, leases []backend.Lease) *turns {
	t := &turns{s, who, leases, make([]chan backend.Grant, len(who))}
	for i, c := range who {
		ctx, cancel := context.WithCancel(s.Context())
		t.got[i] = make(chan backend.Grant, 1)
		go func() {
			defer cancel()
			g, err := c.Await(ctx, leases[i])
			if err != nil && s.Context().Err() == nil {
				s.Errorf("%s awaits its turn: %v", c.who.ID, err)
			}
			t.got[i] <- g
		}()
		go func() {
			for ctx.Err() == nil {
				_ = c.Renew(ctx, leases[i:i+1], func(int, backend.Renewal) {}) // if the place is lost, Await says so
				select {
				case <-time.After(s.short / 4):
				case <-ctx.Done():
				}
			}
		}()
	}
	return t
}

// inOrder releases a name that a holds, and fails unless the waiters have it one after another in that order.
func (t *turns) inOrder(a *claimer, l backend.Lease, last backend.Token, order []int) {
	t.Helper()
	a.release(l)
	for _, i := range order {
		var g backend.Grant
		select {
		case g = <-t.got[i]:
		case <-time.After(t.longest() + 10*time.Second):
			t.Fatalf("the turn of %s never came", t.who[i].who.ID)
		}
		if !g.Held || g.Token <= last {
			t.Fatalf("%s has %+v after token %d", t.who[i].who.ID, g, last)
		}
		last = g.Token
		for j, got := range t.got {
			if len(got) > 0 {
				t.Errorf("%s has the name together with %s", t.who[j].who.ID, t.who[i].who.ID)
			}
		}
		t.who[i].release(t.leases[i])
	}
}

func testOnce(s *suite) {
	name, tick := s.name("once"), leasekeeper.TickNumber(1)
	var running, runs, completed atomic.Int32
	var group sync.WaitGroup
	for range 4 {
		k := s.keeper("k" + random())
		group.Go(func() {
			err := k.Once(s.Context(), name, tick, func(context.Context, *leasekeeper.Lease) error {
				if running.Add(1) > 1 {
					s.Error("two run at once")
				}
				defer running.Add(-1)
				if runs.Add(1) == 1 {
					return errFirst
				}
				return nil
			})
			switch {
			case err == nil:
				completed.Add(1)
			case !errors.Is(err, leasekeeper.ErrDone) && !errors.Is(err, errFirst):
				s.Errorf("Once: %v", err)
			}
		})
	}
	group.Wait()
	if runs.Load() != 2 || completed.Load() != 1 {
		s.Errorf("%d runs, of which the first failed, and %d completions", runs.Load(), completed.Load())
	}
}

// errFirst is the error of a first run.
var errFirst = errors.New("the first run fails")

func testHoldAtLeast(s *suite) {
	a, b, name := s.keeper("a"), s.keeper("b"), s.name("at-least")
	acquired := time.Now()
	l := s.must(a.Acquire(s.Context(), name, leasekeeper.HoldAtLeast(s.ttl)))
	if err := l.Release(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.gone(l)
	_, err := b.TryAcquire(s.Context(), name)
	s.is("b tries to acquire it", err, backend.ErrHeld)
	next := s.must(b.Acquire(s.Context(), name))
	if taken := time.Since(acquired); taken < s.ttl || next.Token() <= l.Token() {
		s.Errorf("%v after %v: taken again after %v, not %v", next, l, taken, s.ttl)
	}
}
