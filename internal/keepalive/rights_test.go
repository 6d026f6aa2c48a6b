package keepalive

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// script is a Renewer with clocks that a test moves.
type script struct {
	t      *testing.T
	h      *Renewer
	clocks *clock.Manual
	got    []Effect // returned by the last Step
}

// usual is the TTL of most leases here.
const usual = 10 * time.Second

// relied is for how long a client can rely on the usual TTL, which runs on the store's clock.
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

// held returns a lease of the usual TTL that was claimed and granted just now.
func (s *script) held() Lease {
	s.t.Helper()
	l := s.claim(usual)
	s.step(Granted{Lease: l, TTL: usual})
	return l
}

// wake advances both clocks by d and returns the first message that a Wake then sends.
func (s *script) wake(d time.Duration) Renew {
	s.t.Helper()
	s.clocks.Advance(d)
	for _, e := range s.step(Wake{}) {
		if r, ok := e.(Renew); ok {
			return r
		}
	}
	s.t.Fatalf("at %v the Renewer renews nothing: %v", s.clocks.Now(), s.got)
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

// The deadline counts from before the first send of the acknowledged request, whenever the answer comes, and however
// often the request was repeated (rule C1).
func TestDeadlineCountsFromBeforeTheFirstSend(t *testing.T) {
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

// The granted TTL counts, even if it is shorter or longer than the claimed TTL, or than that of an earlier renewal
// (rule C1).
func TestDeadlineCountsTheGrantedTTL(t *testing.T) {
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
	// TTLs that have passed when the answer arrives, and TTLs of nothing.
	for _, granted := range []time.Duration{-1, 0, 1, time.Second} {
		s := newScript(t, Config{})
		l := s.claim(usual)
		s.clocks.Advance(time.Second)
		if s.step(Granted{Lease: l, TTL: granted}); !s.has(Lost{l, Void}) || s.h.Valid(s.clocks.Now(), l) {
			t.Errorf("granted for %v: %v", granted, s.got)
		}
	}
}

// A claim of unknown outcome gives no right, and is void when it has taken longer than its TTL (rule C1).
func TestUnknownClaimGivesNoRight(t *testing.T) {
	s := newScript(t, Config{})
	l := s.claim(usual)
	s.step(Unknown{l})
	for range 9 {
		if s.h.Valid(s.clocks.Now(), l) {
			t.Fatal("valid, though the outcome of the claim is unknown")
		}
		s.clocks.Advance(time.Second)
		if s.step(Wake{}); s.has(Resolve{Lease: l}) {
			s.step(Unknown{l})
		}
	}
	s.clocks.Advance(2 * time.Second)
	if s.step(Wake{}); !s.has(Lost{l, Void}) {
		t.Errorf("a claim that could no longer give a right goes on: %v", s.got)
	}
}

// The right ends when the release begins, whatever its outcome (rule C1).
func TestRightEndsWhenTheReleaseBegins(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	r := s.wake(4 * time.Second)
	s.step(Releasing{l})
	if _, ok := s.h.Deadline(l); ok || s.h.Valid(s.clocks.Now(), l) || s.h.Remaining(s.clocks.Now(), l) != 0 {
		t.Error("valid during the release")
	}
	s.ack(r.Number, l, usual)
	s.step(Granted{Lease: l, TTL: usual})
	if s.h.Valid(s.clocks.Now(), l) {
		t.Error("an answer during the release made the lease valid again")
	}
	for tries := 0; ; tries++ {
		s.step(ReleaseFailed{l})
		s.clocks.Advance(2 * time.Second)
		if s.step(Wake{}); s.has(GaveUp{l}) {
			break
		}
		if !s.has(Resolve{Lease: l, Release: true}) || tries > 9 {
			t.Fatalf("the release is neither retried nor given up: %v", s.got)
		}
	}
	if s.step(Released{l}); len(s.got) > 0 {
		t.Errorf("a late Released has effects: %v", s.got)
	}
}

// An end that the backend computed on the clocks of this process is used unchanged (rule C9).
func TestEndOnOwnClocksIsUsedUnchanged(t *testing.T) {
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

// The deadline of a queued claim counts from its last acknowledged renewal. The news that it was granted does not extend
// it (rule C11).
func TestGrantOfAQueuedClaimExtendsNothing(t *testing.T) {
	s := newScript(t, Config{})
	l, first := s.claim(usual), s.clocks.Now()
	s.clocks.Advance(time.Second)
	s.step(Queued{Lease: l, TTL: usual})
	s.wantDeadline(l, first.Add(relied))
	if s.h.Valid(s.clocks.Now(), l) || s.h.Remaining(s.clocks.Now(), l) != 0 {
		t.Error("valid while it is queued")
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

	// Its place in the queue ends at the deadline, and a later grant has no effect.
	s = newScript(t, Config{})
	l = s.claim(usual)
	s.step(Queued{Lease: l, TTL: usual})
	s.clocks.Advance(relied)
	if s.step(Granted{Lease: l, TTL: usual, Until: s.clocks.Now().Add(time.Hour)}); !s.has(Lost{l, Deadline}) {
		t.Errorf("held though its place in the queue had ended: %v", s.got)
	}
}

// A lease is valid while the readings of both clocks are before its deadline (rule T1).
func TestLeaseIsValidWhileBothClocksAreBeforeTheDeadline(t *testing.T) {
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

// The right ends at the deadline, whether or not I/O is under way or the Renewer is woken in time. Later answers do not
// restore it (rule T4).
func TestRightEndsAtTheDeadlineWithoutTimers(t *testing.T) {
	for _, late := range []time.Duration{0, time.Minute} {
		s := newScript(t, Config{})
		l := s.held()
		r := s.wake(4 * time.Second)
		s.clocks.Advance(relied - 4*time.Second + late)
		if s.h.Valid(s.clocks.Now(), l) {
			t.Error("valid past its deadline, because no Wake came")
		}
		if s.ack(r.Number, l, time.Hour); !s.has(Lost{l, Deadline}) {
			t.Errorf("a late answer restored the right: %v", s.got)
		}
		s.ack(r.Number, l, time.Hour)
		if s.step(Wake{}); s.h.Valid(s.clocks.Now(), l) || s.has(Lost{l, Deadline}) {
			t.Errorf("lost twice: %v", s.got)
		}
	}
}

// The Renewer requests a wake-up no later than the deadline, on either clock, whatever else it waits for (rule T4).
func TestWakeIsRequestedByTheDeadline(t *testing.T) {
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
				t.Fatal("the lease has ended, and no Lost was reported")
			}
			return
		}
		if deadline.Before(at) {
			t.Fatalf("the wake-up at %v is after the deadline %v", at, deadline)
		}
		s.clocks.Suspend(s.clocks.Now().Remaining(at))
		s.step(Wake{})
	}
	t.Fatal("the lease does not end in 100 steps")
}

// An answer counts from the send of the message whose number it repeats, and the newest acknowledged number decides the
// deadline (rule G2, for clients).
func TestAnswersCountFromTheirOwnMessage(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	first := s.wake(4 * time.Second)
	at := s.clocks.Now()
	second := s.wake(3 * time.Second) // the first stays unanswered
	if s.has(Abandon{first.Number}) || second.Number == first.Number || !second.Hedge {
		t.Fatalf("the overdue attempt is abandoned, or the hedge has the same number: %v", s.got)
	}
	s.clocks.Advance(time.Second)
	s.ack(first.Number, l, usual)
	s.wantDeadline(l, at.Add(relied))
	s.ack(second.Number, l, usual)
	s.wantDeadline(l, at.Add(3*time.Second).Add(relied))
	s.ack(first.Number, l, time.Hour)
	s.ack(second.Number, l, time.Hour)
	s.wantDeadline(l, at.Add(3*time.Second).Add(relied))

	// An answer to a message that was sent before the claim changes nothing.
	other := s.held()
	want, _ := s.h.Deadline(other)
	s.ack(second.Number, other, time.Hour)
	s.wantDeadline(other, want)
}

// A slow store loses no lease: an attempt goes on until the deadline, however long the TTL is.
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

// slow runs for twenty TTLs on a store that answers every message after answer.
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
			wake = end // unless the Renewer requests another
		}
		events = []Event{e}
		s.clocks.Advance(max(0, s.clocks.Now().Remaining(next)))
	}
	if underWay > 2 {
		s.t.Errorf("TTL %v, answers after %v: %d attempts at once", ttl, answer, underWay)
	}
}

// A lease ends if the store or the driver says so, or at its deadline, and for no other reason (rule G3, for clients).
func TestLeaseIsGoneOnlyIfTheStoreSaysSo(t *testing.T) {
	s := newScript(t, Config{})
	a, b, c := s.held(), s.held(), s.held()
	r := s.wake(4 * time.Second)
	s.step(Renewed{r.Number, []Answer{{Lease: a, Outcome: Failed}, {Lease: b, Outcome: Gone}}})
	s.step(Returned{r.Number})
	now := s.clocks.Now()
	if !s.h.Valid(now, a) || s.h.Valid(now, b) || !s.h.Valid(now, c) {
		t.Error("only an answer Gone may end a lease before its deadline")
	}
	if s.step(Ended{c}); !s.has(Lost{c, EndReported}) || s.h.Valid(now, c) {
		t.Errorf("Ended did not end the lease: %v", s.got)
	}
}
