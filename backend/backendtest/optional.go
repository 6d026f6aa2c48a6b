package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// optionalTests are about abilities of only some backends.
var optionalTests = []test{
	{name: "WatchReportsEveryChange", what: backend.Watch, run: testWatch},
	{name: "WatchBeginsWithThePresentState", what: backend.Watch, run: testWatchStart},
	{name: "HistoryListsTenures", what: backend.History, run: testHistory},
	{name: "AnnounceChangesTheCard", what: backend.Announce, run: testAnnounce},
	{name: "ResumeContinuesATenure", what: backend.Resume, ends: true, run: testResume},
	{name: "RevokeRefusesRenewals", what: backend.Revoke, ends: true, run: testRevoke},
	{name: "RevokeNowFreesAtOnce", what: backend.Revoke, run: testRevokeNow},
	{name: "PinnedNameStays", what: backend.Pin, ends: true, run: testPin},
	{name: "TransferMakesTheNextTheHolder", what: backend.Transfer, run: testTransfer},
}

// unsupported checks that using an ability that the backend lacks returns an error that names it.
func (s *suite) unsupported(what string) {
	a, name := s.claimer("a"), s.name("unsupported")
	l, g := a.hold(name)
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	var u *backend.UnsupportedError
	err := try(ctx, a, what, l, g.Token)
	switch {
	case !errors.As(err, &u) || !errors.Is(err, backend.ErrUnsupported):
		s.Errorf("%s, which is listed as what %s cannot do: %v", what, a.Scheme(), err)
	case u.Backend != a.Scheme() || u.What != what:
		s.Errorf("%s of %s is refused as %s of %s", what, a.Scheme(), u.What, u.Backend)
	}
	if i := a.info(name); !i.Held || i.Token != g.Token {
		s.Errorf("refused, and the lease suffered: %+v", i)
	}
	s.unsupportedByKeeper(ctx, what)
}

// unsupportedByKeeper checks that a keeper returns the same.
func (s *suite) unsupportedByKeeper(ctx context.Context, what string) {
	k := s.keeper("k")
	l := s.must(k.Acquire(ctx, s.name("by-keeper")))
	var err error
	switch what {
	case backend.Watch:
		for _, err = range k.Watch(ctx, s.prefix) {
		}
	case backend.Announce:
		err = l.Announce(ctx, "x")
	case backend.Resume:
		_, err = k.Resume(ctx, s.name("other"), 1)
	case backend.Marks:
		_, err = k.Mark(ctx, s.name("other"))
	case backend.Finishes:
		_, err = k.TryAcquire(ctx, s.name("other"), leasekeeper.HoldAtLeast(s.ttl))
	case backend.Prefer:
		err = k.Transfer(ctx, s.name("other"), "x")
	default:
		return
	}
	var u *backend.UnsupportedError
	if !errors.As(err, &u) || u.What != what {
		s.Errorf("%s by a keeper: %v", what, err)
	}
	if err := l.Check(); err != nil {
		s.Errorf("refused, and the lease suffered: %v", err)
	}
}

// try uses the ability with this name.
func try(ctx context.Context, a *claimer, what string, l backend.Lease, t backend.Token) error {
	switch what {
	case backend.Watch:
		return with(a, func(b backend.Watcher) error { return b.Watch(ctx, a.prefix, func(backend.Event) {}) })
	case backend.History:
		return with(a, func(b backend.Historian) error {
			_, err := b.History(ctx, l.Name(), 1)
			return err
		})
	case backend.Announce:
		return with(a, func(b backend.Announcer) error { return b.Announce(ctx, l, "x") })
	case backend.Resume:
		return with(a, func(b backend.Resumer) error {
			_, _, err := b.Resume(ctx, l.Name(), t, a.who)
			return err
		})
	case backend.Revoke:
		return with(a, func(b backend.Revoker) error { return b.Revoke(ctx, l.Name(), t, "x", true) })
	case backend.Pin:
		return with(a, func(b backend.Pinner) error { return b.Pin(ctx, l.Name(), "x") })
	case backend.Marks:
		return with(a, func(b backend.Marker) error { return b.RaiseMark(ctx, l, backend.TickNumber(1)) })
	case backend.Finishes:
		return with(a, func(b backend.Finisher) error { return b.Finish(ctx, l, backend.Finish{}) })
	case backend.Prefer:
		return with(a, func(b backend.Preferrer) error { return b.Prefer(ctx, l.Name(), "x") })
	case backend.Transfer:
		return with(a, func(b backend.Transferrer) error { return b.Transfer(ctx, l) })
	}
	return fmt.Errorf("backendtest: nothing is called %q", what)
}

func with[T any](a *claimer, do func(T) error) error {
	b, err := backend.Can[T](a.Backend)
	if err != nil {
		return err
	}
	return do(b)
}

// can returns the backend as T, which it must implement.
func can[T any](a *claimer) T {
	a.Helper()
	b, err := backend.Can[T](a.Backend)
	if err != nil {
		a.Fatal(err)
	}
	return b
}

// watching starts a watch, and returns its events and a function that ends it.
func (c *claimer) watching(prefix string) (<-chan backend.Event, func()) {
	c.Helper()
	b := can[backend.Watcher](c)
	ctx, cancel := context.WithCancel(c.Context())
	events, ended := make(chan backend.Event, 100), make(chan error, 1)
	go func() { ended <- b.Watch(ctx, prefix, func(e backend.Event) { events <- e }) }()
	return events, func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			c.Errorf("the watch ended with %v", err)
		}
	}
}

// next waits for an event of this kind; Resync events may come in between at any time.
func (s *suite) next(events <-chan backend.Event, kind backend.EventKind) backend.Event {
	s.Helper()
	timeout := time.After(s.longest() + 10*time.Second)
	for {
		select {
		case e := <-events:
			if e.Kind == kind {
				return e
			}
			if e.Kind != backend.Resync {
				s.Fatalf("waiting for an event of kind %d, got %+v", kind, e)
			}
		case <-timeout:
			s.Fatalf("no event of kind %d", kind)
		}
	}
}

// replaced waits for the event that a new holder has the name. In a store without a queue, which cannot tell
// how many wait, the name may be vacant in between.
func (s *suite) replaced(events <-chan backend.Event) backend.Event {
	s.Helper()
	for {
		select {
		case e := <-events:
			if vacant := e.Kind == backend.Vacated && e.Info.Waiting == -1; e.Kind != backend.Resync && !vacant {
				return e
			}
		case <-time.After(s.longest() + 10*time.Second):
			s.Fatal("no client has the name after its holder has released it")
		}
	}
}

func testWatch(s *suite) {
	a, b, w := s.claimer("a"), s.claimer("b"), s.claimer("watcher")
	a.hold(s.name("watch/first"))
	events, stop := w.watching(s.name("watch/"))
	defer stop()
	// The event for a name that was held before shows that the watch has begun.
	if e := s.next(events, backend.Resync); e.Info.Name != s.name("watch/first") || !e.Info.Held {
		s.Errorf("begins with %+v", e)
	}
	name := s.name("watch/name")
	a.hold(s.name("watchnot"))
	l, g := a.hold(name)
	e := s.next(events, backend.Acquired)
	if e.Info.Name != name || e.Info.Token != g.Token || e.Info.Holder.ID != "a" || !e.Info.Held || e.Why != "" {
		s.Errorf("acquired: %+v", e)
	}
	line := b.wait(name)
	a.release(l)
	b.await(line)
	e = s.replaced(events)
	if e.Kind != backend.Acquired || e.Info.Name != name || e.Info.Token <= g.Token || e.Info.Holder.ID != "b" || e.Why != backend.Released && e.Why != "" {
		s.Errorf("passed on: %+v", e)
	}
	b.release(line)
	e = s.next(events, backend.Vacated)
	if e.Info.Name != name || e.Info.Held || e.Why != backend.Released && e.Why != "" {
		s.Errorf("vacated: %+v", e)
	}
	s.ttl = s.short
	last, _ := a.hold(s.name("watch/last"))
	s.next(events, backend.Acquired)
	e = s.next(events, backend.Vacated) // it is not renewed
	if e.Info.Name != last.Name() || e.Why != backend.Expired && e.Why != "" {
		s.Errorf("expired: %+v", e)
	}
}

func testWatchStart(s *suite) {
	a := s.claimer("a")
	held := map[string]bool{}
	for i := range 5 {
		name := s.name(fmt.Sprint("start/", i))
		a.hold(name)
		held[name] = true
	}
	events, stop := a.watching(s.name("start/"))
	defer stop()
	for len(held) > 0 {
		e := s.next(events, backend.Resync)
		if !held[e.Info.Name] || !e.Info.Held {
			s.Fatalf("begins with %+v", e)
		}
		delete(held, e.Info.Name)
	}
}

func testHistory(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("history")
	h := can[backend.Historian](a)
	if past, err := h.History(s.Context(), name, 10); err != nil || len(past) != 0 {
		s.Errorf("of a name that was never held: %+v, %v", past, err)
	}
	l, g := a.hold(name)
	a.release(l)
	_, next := b.hold(name)
	past, err := h.History(s.Context(), name, 10)
	if err != nil || len(past) != 2 {
		s.Fatalf("%+v, %v", past, err)
	}
	if now := past[0]; now.Token != next.Token || now.Holder.ID != "b" || !now.To.IsZero() || now.From.IsZero() {
		s.Errorf("the present one: %+v", now)
	}
	if was := past[1]; was.Token != g.Token || was.Holder.ID != "a" || was.Why != backend.Released || was.To.Before(was.From) {
		s.Errorf("the one before: %+v", was)
	}
	if one, err := h.History(s.Context(), name, 1); err != nil || len(one) != 1 || one[0].Token != next.Token {
		s.Errorf("one: %+v, %v", one, err)
	}
	_, err = h.History(s.Context(), "//", 1)
	s.is("History of an illegal name", err, backend.ErrInvalid)
}

func testAnnounce(s *suite) {
	a, name := s.claimer("a"), s.name("announce")
	l, g := a.hold(name)
	b := can[backend.Announcer](a)
	if err := b.Announce(s.Context(), l, "at 10.0.0.1:80"); err != nil {
		s.Fatal(err)
	}
	if i := a.info(name); i.Holder.Card.Text != "at 10.0.0.1:80" || i.Holder.Card.Host != a.who.Card.Host || i.Token != g.Token {
		s.Errorf("announced: %+v", i)
	}
	s.is("not UTF-8", b.Announce(s.Context(), l, "\xff"), backend.ErrInvalid)
	a.keep(s.short/2, l)
	a.release(l)
	s.is("after the release", b.Announce(s.Context(), l, "x"), backend.ErrLost)
}

func testResume(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("resume")
	_, g := a.hold(name)
	resumer := can[backend.Resumer](b)
	_, _, err := resumer.Resume(s.Context(), name, g.Token+1, b.who)
	s.is("another token", err, backend.ErrLost)
	_, _, err = resumer.Resume(s.Context(), s.name("unheld"), g.Token, b.who)
	s.is("a name without a holder", err, backend.ErrLost)
	l, got, err := resumer.Resume(s.Context(), name, g.Token, b.who)
	if err != nil || !got.Held || got.Token != g.Token || got.TTL < s.ttl {
		s.Fatalf("resumed: %+v, %v", got, err)
	}
	b.keep(2*s.ttl, l)
	if i := b.info(name); !i.Held || i.Token != g.Token {
		s.Errorf("kept: %+v", i)
	}
	b.release(l)
	if i := b.info(name); i.Held {
		s.Errorf("released: %+v", i)
	}
}

func testRevoke(s *suite) {
	s.ttl *= 3 // it is to be revoked before it expires
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("revoke")
	start := time.Now()
	l, g := a.hold(name)
	r := can[backend.Revoker](b)
	s.is("another token", r.Revoke(s.Context(), name, g.Token+1, "x", false), backend.ErrLost)
	if err := r.Revoke(s.Context(), name, g.Token, "it hangs", false); err != nil {
		s.Fatal(err)
	}
	s.is("a renews", a.renew(l)[0].Err, backend.ErrLost)
	if heir, ok := b.Backend.(backend.Resumer); ok { // resuming does not prolong it either
		_, _, err := heir.Resume(s.Context(), name, g.Token, b.who)
		s.is("b resumes", err, backend.ErrLost)
	}
	s.eventually("the end of what was promised", func() bool { return !b.info(name).Held })
	if lasted := time.Since(start); lasted < s.ttl {
		s.Errorf("a promise of %v was broken after %v", s.ttl, lasted)
	}
	b.hold(name)
}

func testRevokeNow(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("revoke-now")
	l, g := a.hold(name)
	w := b.wait(name)
	start := time.Now()
	r := can[backend.Revoker](b)
	if err := r.Revoke(s.Context(), name, 0, "it hangs", true); err != nil {
		s.Fatal(err)
	}
	if got := b.await(w); got.Token <= g.Token || time.Since(start) > s.ttl {
		s.Errorf("revoked after %v: %+v", time.Since(start), got)
	}
	s.is("a renews", a.renew(l)[0].Err, backend.ErrLost)
	s.is("a name without a holder", r.Revoke(s.Context(), s.name("unheld"), 0, "x", true), backend.ErrLost)
}

func testPin(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("pin")
	p := can[backend.Pinner](a)
	s.is("a name without a holder", p.Pin(s.Context(), name, "x"), backend.ErrInvalid)
	_, g := a.hold(name)
	if err := p.Pin(s.Context(), name, "being repaired"); err != nil {
		s.Fatal(err)
	}
	if i := a.info(name); i.Pinned != "being repaired" {
		s.Errorf("pinned: %+v", i)
	}
	time.Sleep(s.longest() + s.config.Slack)
	b.refused(name, a, g.Token)
	if r, err := backend.Can[backend.Revoker](b.Backend); err == nil {
		s.is("Revoke", r.Revoke(s.Context(), name, 0, "x", true), backend.ErrPinned)
	}
	for range 2 {
		if err := p.Unpin(s.Context(), name); err != nil {
			s.Fatal(err)
		}
	}
	s.eventually("the end of a lease that is pinned no more", func() bool { return !b.info(name).Held })
	l, _ := b.hold(name)
	if err := p.Pin(s.Context(), name, "again"); err != nil {
		s.Fatal(err)
	}
	b.release(l) // its holder may always release it, and the pin belonged to it
	if i := a.info(name); i.Held || i.Pinned != "" {
		s.Errorf("after the release of what was pinned: %+v", i)
	}
	a.hold(name)
	if i := b.info(name); i.Pinned != "" {
		s.Errorf("the next holder inherits a pin: %+v", i)
	}
}

func testTransfer(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("transfer")
	l, g := a.hold(name)
	t := can[backend.Transferrer](a)
	s.is("with an empty queue", t.Transfer(s.Context(), l), backend.ErrInvalid)
	if i := a.info(name); i.Token != g.Token {
		s.Errorf("refused, and lost: %+v", i)
	}
	w := b.wait(name)
	if err := t.Transfer(s.Context(), l); err != nil {
		s.Fatal(err)
	}
	if got := b.await(w); got.Token <= g.Token {
		s.Errorf("handed on: %+v", got)
	}
	s.is("a renews", a.renew(l)[0].Err, backend.ErrLost)
	s.is("a hands on again", t.Transfer(s.Context(), l), backend.ErrLost)
}
