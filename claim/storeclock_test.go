package claim_test

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Tests of what differs where the clock of the store decides.

// In store-clock mode the store's clock decides, and a holder relies on its lease as on that of a server.
func TestStoreClockModeDecidesByTheStoresClock(t *testing.T) {
	w := newWorld(t)
	a, b := judged(w, "a"), judged(w, "b")
	l := a.hold("job", 100*time.Second)
	if remains := a.remains(l); remains >= 100*time.Second || remains < 99*time.Second {
		t.Errorf("it is relied on for %v", remains)
	}
	same(w, "what is left", b.refused("job").Round(time.Second), 100*time.Second)
	w.memory.Advance(101 * time.Second) // by the store's clock alone
	next := b.hold("job", time.Minute)  // at once, though b reads it for the first time
	same(w, "token", next.Token(), l.Token()+1)
	w.is("a extends", a.Extend(t.Context(), l, 0), backend.ErrLost)
	w.is("expire", a.Expire(t.Context(), "job"), backend.ErrHeld)
	w.memory.Advance(time.Minute + time.Millisecond)
	w.is("expire", a.Expire(t.Context(), "job"), nil)
}

// In store-clock mode, too, a renewal never shortens an earlier promise.
func TestStoreClockModeNeverShortens(t *testing.T) {
	w := newWorld(t)
	a, b := judged(w, "a"), judged(w, "b")
	l := a.hold("job", 100*time.Second)
	until := l.Until()
	w.pass(10 * time.Second)
	a.extend(l, time.Second)
	if now := l.Until(); now.Before(until) {
		t.Errorf("relied on until %v, and then until %v", until, now)
	}
	for a.Now().Before(l.Until()) {
		b.refused("job")
		w.pass(time.Second)
	}
	w.pass(2 * time.Second)
	b.hold("job", time.Minute)

	l = a.hold("other", 100*time.Second)
	resumed, err := b.Resume(t.Context(), "other", l.Token(), backend.Holder{ID: "b"}, w.id())
	w.is("resume", err, nil)
	b.extend(resumed, 10*time.Millisecond)
	w.pass(98 * time.Second)
	a.refused("other")
	if !a.Now().Before(l.Until()) {
		t.Error("the test is too slow")
	}
}

// In store-clock mode a repeated claim that asks for less does not shorten the earlier promise.
func TestStoreClockModeRepeatedClaimShortensNothing(t *testing.T) {
	w := newWorld(t)
	a, b := judged(w, "a"), judged(w, "b")
	q := a.request("job", 100*time.Second)
	l, err := a.Claim(t.Context(), q)
	w.is("claim", err, nil)
	q.TTL = time.Second
	_, err = a.Claim(t.Context(), q)
	w.is("claim again", err, nil)
	for a.Now().Before(l.Until()) {
		b.refused("job")
		w.pass(5 * time.Second)
	}
}

// The release of a claim in doubt ends the tenure that the claim would have replaced only if the store's clock
// says, when the write arrives, that it has expired. The claimer's own judgement may be old by then.
func TestStoreClockModeJudgesTheReleaseOfADoubtInTheWrite(t *testing.T) {
	for _, renewed := range []bool{false, true} {
		w := newWorld(t)
		a, b := judged(w, "a"), judged(w, "b")
		l := b.hold("job", time.Minute)
		w.memory.Advance(61 * time.Second)
		a.wire.next = []string{"parked", "unavailable"}
		doubtful, err := a.try("job", 30*time.Second)
		w.is("a claims", err, backend.ErrUnknownOutcome)
		var asked []bool
		a.wire.before = func(s claim.Swap) {
			asked = append(asked, s.Ended)
			if renewed && len(asked) == 1 {
				b.extend(l, time.Hour) // in time, since no other client has taken it
			}
		}
		w.is("a gives it back", a.Release(t.Context(), doubtful), nil)
		same(w, "landed late", a.wire.arrive(), 0)
		if len(asked) == 0 || !asked[0] {
			t.Errorf("the store was asked to judge: %v", asked)
		}
		if s := b.state("job"); s.Record.Held() != renewed {
			t.Errorf("b has renewed: %v; %+v", renewed, s.Record)
		}
		if renewed {
			b.extend(l, 0)
		}
	}
}
