package claim_test

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

func TestResumeContinuesATenure(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	w.pass(10 * time.Second)
	by := backend.Holder{ID: "b", Card: backend.Card{Host: "bhost"}}
	_, err := b.Resume(t.Context(), "job", l.Token()+1, by, w.id())
	w.is("another token", err, backend.ErrLost)
	_, err = b.Resume(t.Context(), "other", 1, by, w.id())
	w.is("another name", err, backend.ErrLost)
	_, err = b.Resume(t.Context(), "job", 0, by, w.id())
	w.is("no token", err, backend.ErrInvalid)
	b.wire.next = []string{"parked"}
	b.wire.slow = func() { b.wire.down = errTorn }
	id := w.id()
	doubt, err := b.Resume(t.Context(), "job", l.Token(), by, id)
	w.is("in doubt", err, backend.ErrUnknownOutcome)
	b.wire.down = nil
	got, err := b.Resume(t.Context(), "job", l.Token(), by, id)
	w.is("resume", err, nil)
	same(w, "the lease", got, doubt)
	same(w, "landed late", b.wire.arrive(), 0)
	same(w, "token", got.Token(), l.Token())
	if remains := b.remains(got); remains < 30*time.Second { // b cannot know that 10 s have passed
		t.Errorf("it is relied on for %v", remains)
	}
	r := b.state("job").Record
	if r.Holder != "b" || r.Card.Host != "bhost" || r.TTL != 30*time.Second {
		t.Errorf("resumed: %+v", r)
	}
	w.is("a extends", a.Extend(t.Context(), l, 0), backend.ErrLost)
	w.is("a releases", a.Release(t.Context(), l), nil)
	b.extend(got, 0)
}

// A resumption in doubt that is released leaves the tenure as it is.
func TestReleasedResumptionNeverLands(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	b.wire.next = []string{"parked", "unavailable"}
	doubt, err := b.Resume(t.Context(), "job", l.Token(), backend.Holder{ID: "b"}, w.id())
	w.is("in doubt", err, backend.ErrUnknownOutcome)
	w.is("release", b.Release(t.Context(), doubt), nil)
	same(w, "landed late", b.wire.arrive(), 0)
	a.extend(l, 0)
	same(w, "it is relied on for", a.remains(l), 30*time.Second)
}
