package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

// watched returns the events of a watch.
func watched(t *testing.T, b *remote.Backend, prefix string) <-chan backend.Event {
	t.Helper()
	events := make(chan backend.Event, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Watch(ctx, prefix, func(e backend.Event) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		is(t, <-ended, context.Canceled)
	})
	return events
}

func next(t *testing.T, events <-chan backend.Event) backend.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(waitLimit):
		t.Fatal("no event")
		panic("unreachable")
	}
}

// After the connection was down, the watch reports which names are held and which are free now.
func TestWatchResumesWithoutAGap(t *testing.T) {
	s := startStore(t)
	p := startProxy(t, s.Addr)
	b := openWith(t, remote.Config{Endpoints: []string{p.Addr()}, Namespace: "ns"})
	direct := openWith(t, remote.Config{Endpoints: []string{s.Addr}, Namespace: "ns"})
	outside := open(t, s.Addr)
	prefix := unique("gap/")
	stays, _ := hold(t, direct, prefix+"stays")
	goes, _ := hold(t, direct, prefix+"goes")
	hold(t, outside, prefix+"elsewhere")
	events := watched(t, b, prefix)
	for _, l := range []backend.Lease{goes, stays} {
		if e := next(t, events); e.Kind != backend.Resync || !e.Info.Held || e.Info.Name != l.Name() {
			t.Errorf("begins with %+v", e)
		}
	}
	// No endpoint answers for some time.
	p.Stall(false)
	p.Cut()
	ok(t, direct.Release(limited(t), goes))
	_, g := hold(t, direct, prefix+"new")
	p.Resume()
	p.Cut()
	reported := make(map[string]backend.Event)
	for len(reported) < 3 {
		e := next(t, events)
		if e.Kind != backend.Resync {
			t.Errorf("%+v", e)
		}
		reported[e.Info.Name] = e
	}
	if e := reported[prefix+"new"]; e.Info.Token != g.Token || !reported[prefix+"stays"].Info.Held || reported[prefix+"goes"].Info.Held {
		t.Errorf("%+v", reported)
	}
	ok(t, direct.Release(limited(t), stays))
	for {
		e := next(t, events)
		if e.Kind == backend.Resync {
			continue // the connection may have been cut twice
		}
		if e.Kind != backend.Vacated || e.Info.Name != stays.Name() || e.Why != backend.Released {
			t.Errorf("%+v", e)
		}
		break
	}
}

// The watch reports pins, announcements and transfers.
func TestWatchReportsPinsAndAnnouncements(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("pins")
	l, _ := hold(t, b, name)
	events := watched(t, b, name)
	next(t, events)
	ok(t, b.Pin(limited(t), name, ""))
	if e := next(t, events); e.Kind != backend.Resync || e.Info.Pinned == "" {
		t.Errorf("%+v", e)
	}
	ok(t, b.Unpin(limited(t), name))
	if e := next(t, events); e.Kind != backend.Resync || e.Info.Pinned != "" {
		t.Errorf("%+v", e)
	}
	ok(t, b.Announce(limited(t), l, "here"))
	if e := next(t, events); e.Kind != backend.Announced || e.Info.Holder.Card.Text != "here" {
		t.Errorf("%+v", e)
	}
	enqueue(t, b, name)
	ok(t, b.Transfer(limited(t), l))
	if e := next(t, events); e.Kind != backend.Acquired || e.Why != backend.Transferred {
		t.Errorf("%+v", e)
	}
}

// A list continues where a page of the server ends.
func TestListContinuesPastTheServersPages(t *testing.T) {
	s := startStore(t)
	b := openWith(t, remote.Config{Endpoints: []string{s.Addr}, Namespace: "ns"})
	const many = 1200
	manyLeases(t, b, many)
	found, err := b.List(limited(t), "test-", "", 5000)
	if err != nil || len(found) != many {
		t.Fatalf("%d names, %v", len(found), err)
	}
	rest, err := b.List(limited(t), "", found[99].Name, 5000)
	if err != nil || len(rest) != many-100 || rest[0].Name != found[100].Name {
		t.Errorf("%d names behind the hundredth, %v", len(rest), err)
	}
	_, err = b.List(limited(t), "", "", 0)
	is(t, err, backend.ErrInvalid)
}
