package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// letGo claims and releases a name, and returns the token of that tenure.
func (a *actor) letGo(name string) backend.Token {
	a.Helper()
	l := a.hold(name, time.Minute)
	a.is("release", a.Release(a.Context(), l), nil)
	return l.Token()
}

// A process claims a name that it released itself without a read. Whatever other clients have done with the
// name since, it gets the present state: a higher token, a refusal from a read, the pins and the past.
func TestClaimOfANameReleasedHereNeedsNoRead(t *testing.T) {
	for what, meanwhile := range map[string]func(w *world, a, b *actor){
		"nothing":     func(*world, *actor, *actor) {},
		"held":        func(_ *world, _, b *actor) { b.letGo("job") },
		"pinned":      func(w *world, _, b *actor) { w.is("pin", b.Pin(t.Context(), "job", "why"), nil) },
		"collected":   func(w *world, _, b *actor) { collectAll(w, b) },
		"made again":  func(w *world, _, b *actor) { collectAll(w, b); b.letGo("job") },
		"floor":       func(w *world, _, b *actor) { raise(w, b, 1000) },
		"floor, held": func(w *world, _, b *actor) { raise(w, b, 1000); b.letGo("job") },
	} {
		w := newWorld(t)
		a, b := w.actor("a", time.Hour), w.actor("b", 0)
		a.letGo("job")
		meanwhile(w, a, b)
		s := b.state("job")
		l := a.hold("job", time.Minute)
		want := max(s.Record.Token, s.Floor) + 1
		same(w, what+": token", l.Token(), want)
		now := b.state("job").Record
		same(w, what+": pins and past", fmt.Sprint(now.Pins, len(now.Past)), fmt.Sprint(s.Record.Pins, len(s.Record.Past)))
	}
}

func collectAll(w *world, a *actor) {
	w.Helper()
	if n, err := a.Collect(w.Context(), claim.Collection{}); n != 1 || err != nil {
		w.Fatal(n, err)
	}
}

func raise(w *world, a *actor, to backend.Token) {
	w.Helper()
	if _, err := a.RaiseFloor(w.Context(), to); err != nil {
		w.Fatal(err)
	}
}

// The remembered record is no reason to refuse a name, nor to believe that it is free.
func TestRememberedRecordIsNoReasonToRefuse(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	a.letGo("job")
	l := b.hold("job", time.Minute)
	a.refused("job")
	w.is("release", b.Release(t.Context(), l), nil)
	a.hold("job", time.Minute)
	// Only a read of the record shows that a claim has ended.
	q := a.request("other", time.Minute)
	ended, err := a.Claim(t.Context(), q)
	w.is("claim", err, nil)
	w.is("release", a.Release(t.Context(), ended), nil)
	a.wire.counted()
	_, err = a.Claim(t.Context(), q)
	w.is("the same claim again", err, backend.ErrLost)
	same(w, "it costs", a.wire.counted(), "map[get:1]")
}

// A store that cannot compare the floor in the write is read first each time.
func TestStoreThatIsNotBoundedIsReadFirst(t *testing.T) {
	w := newWorld(t)
	a := w.plain("a", newHands(time.Hour))
	a.letGo("job")
	a.wire.counted()
	a.letGo("job")
	same(w, "a claim and a release cost", a.wire.counted(), "map[get:1 swap:2]")
}

// The number of remembered names is bounded.
func TestRememberedNamesAreBounded(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	const many = 1200
	for i := range many {
		a.letGo(fmt.Sprint("job", i))
	}
	a.wire.counted()
	for i := range many {
		a.hold(fmt.Sprint("job", i), time.Minute)
	}
	same(w, "claims cost", a.wire.counted(), fmt.Sprintf("map[get:%d swap:%d]", many-1024, many))
}
