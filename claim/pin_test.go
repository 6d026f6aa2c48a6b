package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// A pin by another client is a new op, but the promise is still the holder's.
func TestPinKeepsThePromiseAsItIs(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	w.is("pin", b.Pin(t.Context(), "job", "repair"), nil)
	w.is("pin", b.Pin(t.Context(), "job", "audit"), nil)
	b.wire.counted()
	w.is("pin again", b.Pin(t.Context(), "job", "audit"), nil)
	same(w, "to pin again costs", b.wire.counted(), "map[get:1]")
	same(w, "pins", fmt.Sprint(b.state("job").Record.Pins), "[audit repair]")
	w.pass(time.Hour)
	same(w, "over", b.state("job").Over, false)
	same(w, "the end that b learns", b.refused("job"), 0)
	w.is("expire", a.Expire(t.Context(), "job"), backend.ErrPinned)
	w.is("revoke", a.Revoke(t.Context(), "job", 0, "", true), backend.ErrPinned)
	a.extend(l, 0)
	same(w, "it is relied on for", a.remains(l), 30*time.Second)
	w.is("unpin", b.Unpin(t.Context(), "job", "audit"), nil)
	w.is("unpin what is not", b.Unpin(t.Context(), "job", "nothing"), nil)
	w.pass(time.Hour)
	w.is("expire", a.Expire(t.Context(), "job"), backend.ErrPinned)
	w.is("unpin", b.Unpin(t.Context(), "job", "repair"), nil)
	w.is("expire", a.Expire(t.Context(), "job"), nil)
}

// A vacant name can be pinned, even one that was never held. The next holder inherits the pin, and a collection
// leaves it.
func TestPinsOfVacantNamesAreInherited(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	w.is("unpin what never was", b.Unpin(t.Context(), "job", ""), nil)
	same(w, "exists", b.state("job").Record.Op, claim.Op{})
	w.is("pin", b.Pin(t.Context(), "job", "repair"), nil)
	n, err := b.Collect(t.Context(), claim.Collection{})
	if n != 0 || err != nil {
		t.Errorf("collected %d, %v", n, err)
	}
	l := a.hold("job", 30*time.Second)
	w.pass(time.Hour)
	b.refused("job")
	w.is("release of what is pinned", a.Release(t.Context(), l), nil)
	same(w, "pins", fmt.Sprint(a.state("job").Record.Pins), "[repair]")
	l = a.hold("job", 30*time.Second)
	w.is("unpin all", b.Unpin(t.Context(), "job", ""), nil)
	w.pass(time.Hour)
	same(w, "token", a.hold("job", time.Minute).Token(), l.Token()+1)
	for i := range claim.MaxPins {
		w.is("pin", b.Pin(t.Context(), "job", fmt.Sprint(i)), nil)
	}
	w.is("one pin too many", b.Pin(t.Context(), "job", "x"), backend.ErrInvalid)
	w.is("a pin that is there already", b.Pin(t.Context(), "job", "7"), nil)
}

// ReleaseAndUnpin ends a tenure and its pins in one write. It does not touch the pins of another tenure.
func TestReleaseAndUnpinRemovesThePinsInTheSameWrite(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	w.is("pin", b.Pin(t.Context(), "job", "repair"), nil)
	a.extend(l, 0)
	a.wire.counted()
	w.is("release", a.ReleaseAndUnpin(t.Context(), l), nil)
	same(w, "to release costs", a.wire.counted(), "map[swap:1]")
	same(w, "pins", len(a.state("job").Record.Pins), 0)
	b.hold("job", 30*time.Second)
	w.is("pin", b.Pin(t.Context(), "job", "audit"), nil)
	w.is("release once more", a.ReleaseAndUnpin(t.Context(), l), nil)
	same(w, "pins of the next holder", fmt.Sprint(b.state("job").Record.Pins), "[audit]")
}

// The answer to a pin is lost, and the client finds the outcome.
func TestLostAnswerOfAPinIsFound(t *testing.T) {
	for fate, want := range map[string]error{"unanswered": nil, "lost": nil, "unavailable": backend.ErrUnavailable} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		a.hold("job", time.Minute)
		a.wire.next = []string{fate}
		w.is(fate, a.Pin(t.Context(), "job", "x"), want)
		same(w, fate, len(a.state("job").Record.Pins), map[bool]int{true: 1}[want == nil])
	}
}
