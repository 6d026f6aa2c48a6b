package keepalive

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// script is a holder with clocks that a test moves.
type script struct {
	t      *testing.T
	h      *Renewer
	clocks *clock.Manual
	got    []Effect // of the last Step
}

// usual is the TTL of most leases here.
const usual = 10 * time.Second

// relied is what that is worth of the clock of a store.
var relied = clock.DefaultDrift.RelyRemote(usual)

func newScript(t *testing.T, c Config) *script {
	t.Helper()
	c.steady = true
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &script{t: t, h: h, clocks: clock.NewManual(clock.Instant{}.Add(time.Hour))}
}

func (s *script) claim(ttl time.Duration) Lease {
	s.t.Helper()
	l, err := s.h.Claim(s.clocks.Now(), ttl)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *script) step(e Event) []Effect {
	s.got = slices.Clone(s.h.Step(s.clocks.Now(), e))
	return s.got
}

// held returns a lease of ten seconds that was claimed and granted just now.
func (s *script) held() Lease {
	s.t.Helper()
	l := s.claim(usual)
	s.step(Granted{Lease: l, TTL: usual})
	return l
}

// wake lets d pass on both clocks and returns the message that is asked for then.
func (s *script) wake(d time.Duration) Renew {
	s.t.Helper()
	s.clocks.Advance(d)
	for _, e := range s.step(Wake{}) {
		if r, ok := e.(Renew); ok {
			return r
		}
	}
	s.t.Fatalf("at %v nothing is renewed: %v", s.clocks.Now(), s.got)
	return Renew{}
}

func (s *script) ack(number uint64, l Lease, ttl time.Duration) []Effect {
	return s.step(Renewed{number, []Answer{{Lease: l, TTL: ttl}}})
}

func (s *script) wantDeadline(l Lease, want clock.Instant) {
	s.t.Helper()
	if got, ok := s.h.Deadline(l); !ok || got != want {
		s.t.Errorf("deadline is %v, %v, want %v", got, ok, want)
	}
}

func (s *script) has(e Effect) bool {
	return slices.ContainsFunc(s.got, func(f Effect) bool { return fmt.Sprint(f) == fmt.Sprint(e) })
}

// C1: a deadline is counted from before the first send of what was acknowledged, whenever the answer comes,
// and however often it was asked.
func TestC1FromBeforeTheFirstSend(t *testing.T) {
	s := newScript(t, Config{})
	l, first := s.claim(usual), s.clocks.Now()
	s.clocks.Advance(time.Second)
	s.step(Unknown{l})
	s.clocks.Advance(time.Second)
	if s.step(Wake{}); !s.has(Resolve{Lease: l}) {
		t.Fatalf("the claim is not repeated: %v", s.got)
	}
	s.clocks.Advance(time.Second)
	s.step(Granted{Lease: l, TTL: usual})
	s.wantDeadline(l, first.Add(relied))
	if !s.has(Held{l, first.Add(relied)}) {
		t.Errorf("not held: %v", s.got)
	}

	r := s.wake(time.Second)
	sent := s.clocks.Now()
	s.clocks.Advance(time.Second)
	s.wantDeadline(l, first.Add(relied))
	s.ack(r.Number, l, usual)
	s.wantDeadline(l, sent.Add(relied))
}

// C1: it is the granted TTL that counts, also if it is shorter or longer than the one asked for, or than
// that of an earlier renewal.
func TestC1GrantedTTL(t *testing.T) {
	for _, granted := range []time.Duration{5 * time.Second, 30 * time.Second} {
		s := newScript(t, Config{})
		l, first := s.claim(usual), s.clocks.Now()
		s.step(Granted{Lease: l, TTL: granted})
		s.wantDeadline(l, first.Add(clock.DefaultDrift.RelyRemote(granted)))
		r := s.wake(granted / 2)
		sent := s.clocks.Now()
		s.ack(r.Number, l, 2*time.Second)
		s.wantDeadline(l, sent.Add(clock.DefaultDrift.RelyRemote(2*time.Second)))
	}
	// So short that it is over when it arrives, or nothing at all.
	for _, granted := range []time.Duration{-1, 0, 1, time.Second} {
		s := newScript(t, Config{})
		l := s.claim(usual)
		s.clocks.Advance(time.Second)
		if s.step(Granted{Lease: l, TTL: granted}); !s.has(Lost{l, Void}) || s.h.Valid(s.clocks.Now(), l) {
			t.Errorf("granted for %v: %v", granted, s.got)
		}
	}
}

// C1: a claim whose outcome is not known gives no right. One that has taken longer than its TTL is void.
func TestC1UnknownClaim(t *testing.T) {
	s := newScript(t, Config{})
	l := s.claim(usual)
	s.step(Unknown{l})
	for range 9 {
		if s.h.Valid(s.clocks.Now(), l) {
			t.Fatal("valid, though nobody knows")
		}
		s.clocks.Advance(time.Second)
		if s.step(Wake{}); s.has(Resolve{Lease: l}) {
			s.step(Unknown{l})
		}
	}
	s.clocks.Advance(2 * time.Second)
	if s.step(Wake{}); !s.has(Lost{l, Void}) {
		t.Errorf("a claim that would give no right any more goes on: %v", s.got)
	}
}

// C1: the right ends when the release begins, whatever becomes of it.
func TestC1ReleaseEndsAtOnce(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	r := s.wake(4 * time.Second)
	s.step(Releasing{l})
	if _, ok := s.h.Deadline(l); ok || s.h.Valid(s.clocks.Now(), l) || s.h.Remaining(s.clocks.Now(), l) != 0 {
		t.Error("valid while it is released")
	}
	s.ack(r.Number, l, usual)
	s.step(Granted{Lease: l, TTL: usual})
	if s.h.Valid(s.clocks.Now(), l) {
		t.Error("an answer has given back what was being released")
	}
	for tries := 0; ; tries++ {
		s.step(ReleaseFailed{l})
		s.clocks.Advance(2 * time.Second)
		if s.step(Wake{}); s.has(GaveUp{l}) {
			break
		}
		if !s.has(Resolve{Lease: l, Release: true}) || tries > 9 {
			t.Fatalf("neither tried again nor given up: %v", s.got)
		}
	}
	if s.step(Released{l}); len(s.got) > 0 {
		t.Errorf("too late: %v", s.got)
	}
}

// C9: an end that was counted on the clocks of this process is relied on as it is.
func TestC9UntilAsItIs(t *testing.T) {
	s := newScript(t, Config{Drift: clock.MaxDrift})
	l := s.claim(usual)
	until := s.clocks.Now().Add(usual)
	s.clocks.Advance(3 * time.Second)
	s.step(Granted{Lease: l, TTL: time.Hour, Until: until})
	s.wantDeadline(l, until)
	first := s.wake(time.Second)
	second := s.wake(5 * time.Second)
	later := clock.Instant{Raw: s.clocks.Now().Raw + 7, Boot: s.clocks.Now().Boot + int64(time.Hour)}
	s.step(Renewed{second.Number, []Answer{{Lease: l, Until: later}}})
	s.wantDeadline(l, later)
	s.step(Renewed{first.Number, []Answer{{Lease: l, Until: until.Add(time.Second)}}})
	s.wantDeadline(l, later)
}

// C11: a waiter counts from its last acknowledged renewal. "Yours" moves nothing.
func TestC11YoursMovesNothing(t *testing.T) {
	s := newScript(t, Config{})
	l, first := s.claim(usual), s.clocks.Now()
	s.clocks.Advance(time.Second)
	s.step(Queued{Lease: l, TTL: usual})
	s.wantDeadline(l, first.Add(relied))
	if s.h.Valid(s.clocks.Now(), l) || s.h.Remaining(s.clocks.Now(), l) != 0 {
		t.Error("may act while it stands in line")
	}
	r := s.wake(4 * time.Second)
	sent := s.clocks.Now()
	s.ack(r.Number, l, usual)
	s.clocks.Advance(2 * time.Second)
	s.step(Granted{Lease: l, TTL: time.Hour})
	s.wantDeadline(l, sent.Add(relied))
	if !s.has(Held{l, sent.Add(relied)}) {
		t.Errorf("not held: %v", s.got)
	}
	s.step(Granted{Lease: l, TTL: time.Hour})
	s.step(Queued{Lease: l, TTL: time.Hour})
	s.wantDeadline(l, sent.Add(relied))

	// Its place in line is over at the deadline, and "yours" comes too late.
	s = newScript(t, Config{})
	l = s.claim(usual)
	s.step(Queued{Lease: l, TTL: usual})
	s.clocks.Advance(relied)
	if s.step(Granted{Lease: l, TTL: usual, Until: s.clocks.Now().Add(time.Hour)}); !s.has(Lost{l, Deadline}) {
		t.Errorf("held from a line it does not stand in: %v", s.got)
	}
}

// T1, the relying side: a deadline may be relied on while both readings are before it.
func TestT1BothClocksBefore(t *testing.T) {
	for _, test := range []struct {
		raw, boot time.Duration
		valid     bool
	}{
		{relied - 1, relied - 1, true},
		{relied, 0, false},
		{0, relied, false},
		{relied - 1, time.Hour, false},
		{time.Hour, relied - 1, false},
	} {
		s := newScript(t, Config{})
		l := s.held()
		s.clocks.AdvanceBy(test.raw, test.boot)
		if got := s.h.Valid(s.clocks.Now(), l); got != test.valid {
			t.Errorf("raw %v, boot %v: valid is %v", test.raw, test.boot, got)
		}
		if left := s.h.Remaining(s.clocks.Now(), l); (left > 0) != test.valid {
			t.Errorf("raw %v, boot %v: %v remaining", test.raw, test.boot, left)
		}
		if s.step(Wake{}); s.has(Lost{l, Deadline}) == test.valid {
			t.Errorf("raw %v, boot %v: %v", test.raw, test.boot, s.got)
		}
	}
}

// T4, for holders: a right ends at its deadline with I/O under way or without, woken in time or not. What
// arrives afterwards does not bring it back.
func TestT4DeadlineWithoutTimers(t *testing.T) {
	for _, late := range []time.Duration{0, time.Minute} {
		s := newScript(t, Config{})
		l := s.held()
		r := s.wake(4 * time.Second)
		s.clocks.Advance(relied - 4*time.Second + late)
		if s.h.Valid(s.clocks.Now(), l) {
			t.Error("valid past its deadline, because nobody has woken the holder")
		}
		if s.ack(r.Number, l, time.Hour); !s.has(Lost{l, Deadline}) {
			t.Errorf("an answer has brought it back: %v", s.got)
		}
		s.ack(r.Number, l, time.Hour)
		if s.step(Wake{}); s.h.Valid(s.clocks.Now(), l) || s.has(Lost{l, Deadline}) {
			t.Errorf("lost twice: %v", s.got)
		}
	}
}

// T4: the holder asks to be woken at the deadline at the latest, whatever else it is waiting for, and counts
// on either clock.
func TestT4WokenAtTheDeadline(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	var at clock.Instant
	for range 100 {
		for _, e := range s.got {
			if w, ok := e.(WakeAt); ok {
				at = w.At
			}
			if r, ok := e.(Renew); ok {
				defer s.step(Returned{r.Number})
			}
		}
		deadline, ok := s.h.Deadline(l)
		if !ok {
			if !s.has(Lost{l, Deadline}) {
				t.Fatal("lost without a word")
			}
			return
		}
		if deadline.Before(at) {
			t.Fatalf("woken at %v for %v", at, deadline)
		}
		s.clocks.Suspend(s.clocks.Now().Remaining(at))
		s.step(Wake{})
	}
	t.Fatal("it goes on for ever")
}

// G2, the client's side: an answer counts from the send of the number it repeats, and only the newest number
// that was acknowledged decides.
func TestG2AnswersBelongToTheirNumber(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	first := s.wake(4 * time.Second)
	at := s.clocks.Now()
	second := s.wake(3 * time.Second) // the first stays unanswered
	if s.has(Abandon{first.Number}) || second.Number == first.Number || !second.Hedge {
		t.Fatalf("the attempt that is overdue is given up, or the hedge is no message of its own: %v", s.got)
	}
	s.clocks.Advance(time.Second)
	s.ack(first.Number, l, usual)
	s.wantDeadline(l, at.Add(relied))
	s.ack(second.Number, l, usual)
	s.wantDeadline(l, at.Add(3*time.Second).Add(relied))
	s.ack(first.Number, l, time.Hour)
	s.ack(second.Number, l, time.Hour)
	s.wantDeadline(l, at.Add(3*time.Second).Add(relied))

	// A message that was sent before the lease was claimed says nothing about it.
	other := s.held()
	want, _ := s.h.Deadline(other)
	s.ack(second.Number, other, time.Hour)
	s.wantDeadline(other, want)
}

// A store that is only slow loses no lease: an attempt goes on until the deadline, however long the TTL is.
func TestSlowStoreLosesNoLease(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, time.Second, 6 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		for _, percent := range []int64{1, 10, 23, 30, 45} {
			s := newScript(t, Config{})
			l := s.claim(ttl)
			s.step(Granted{Lease: l, TTL: ttl})
			s.slow(l, ttl, ttl*time.Duration(percent)/100)
		}
	}
}

// slow runs for twenty TTLs on a store that takes so long for every answer.
func (s *script) slow(l Lease, ttl, answer time.Duration) {
	s.t.Helper()
	type arrival struct {
		at     clock.Instant
		number uint64
	}
	var arrivals []arrival
	events, underWay := []Event{Wake{}}, 0
	end := s.clocks.Now().Add(20 * ttl)
	wake := end
	for s.clocks.Now().Before(end) {
		for _, e := range events {
			for _, f := range s.step(e) {
				switch f := f.(type) {
				case Renew:
					arrivals = append(arrivals, arrival{s.clocks.Now().Add(answer), f.Number})
				case Abandon:
					arrivals = slices.DeleteFunc(arrivals, func(a arrival) bool { return a.number == f.Number })
				case Lost:
					s.t.Fatalf("TTL %v, answers after %v: %v", ttl, answer, f)
				case WakeAt:
					wake = f.At
				}
			}
			underWay = max(underWay, s.h.Stats().InFlight)
		}
		next, e := wake, Event(Wake{})
		if len(arrivals) > 0 && arrivals[0].at.Before(wake) {
			next, e = arrivals[0].at, Renewed{arrivals[0].number, []Answer{{Lease: l, TTL: ttl}}}
			arrivals = arrivals[1:]
		} else {
			wake = end // unless it asks for another
		}
		events = []Event{e}
		s.clocks.Advance(max(0, s.clocks.Now().Remaining(next)))
	}
	if underWay > 2 {
		s.t.Errorf("TTL %v, answers after %v: %d attempts at once", ttl, answer, underWay)
	}
}

// G3, the client's side: a lease is gone if the store says so, and for no other reason but its deadline.
func TestG3GoneOnlyAsTold(t *testing.T) {
	s := newScript(t, Config{})
	a, b, c := s.held(), s.held(), s.held()
	r := s.wake(4 * time.Second)
	s.step(Renewed{r.Number, []Answer{{Lease: a, Outcome: Failed}, {Lease: b, Outcome: Gone}}})
	s.step(Returned{r.Number})
	now := s.clocks.Now()
	if !s.h.Valid(now, a) || s.h.Valid(now, b) || !s.h.Valid(now, c) {
		t.Error("failed and not answered are not gone, and gone is")
	}
	if s.step(Ended{c}); !s.has(Lost{c, Told}) || s.h.Valid(now, c) {
		t.Errorf("told in vain: %v", s.got)
	}
}
