package keepalive

import (
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// drive carries out the effects until there are none or the lease has ended. It passes each message to answer, and the
// Renewer receives the returned events at once.
func (s *script) drive(l Lease, answer func(Renew) []Event) (sends []clock.Instant, abandoned int) {
	s.t.Helper()
	var at *clock.Instant
	for _, e := range s.got {
		if w, ok := e.(WakeAt); ok {
			at = &w.At
		}
	}
	events := []Event{Wake{}}
	for range 10_000 {
		for _, e := range events {
			events = nil
			for _, f := range s.step(e) {
				switch f := f.(type) {
				case Renew:
					if slices.Contains(f.Leases, l) {
						sends = append(sends, s.clocks.Now())
					}
					events = append(events, answer(f)...)
				case Abandon:
					abandoned++
				case WakeAt:
					at = &f.At
				}
			}
		}
		if len(events) > 0 {
			continue
		}
		if _, ok := s.h.Deadline(l); !ok || at == nil {
			return sends, abandoned
		}
		s.clocks.Advance(max(0, s.clocks.Now().Remaining(*at)))
		at, events = nil, []Event{Wake{}}
	}
	s.t.Fatal("the lease does not end in 10,000 steps")
	return nil, 0
}

// The number of attempts is bounded, whether they fail at once or stay unanswered. The first attempt is overdue after a
// third of the time left, a hedge after half of it.
func TestAttemptsAreSpaced(t *testing.T) {
	for _, ttl := range []time.Duration{MinTTL, time.Second, 12 * time.Second, time.Minute, time.Hour, 240 * time.Hour} {
		s := newScript(t, Config{})
		l := s.claim(ttl)
		s.step(Granted{Lease: l, TTL: ttl})
		sends, _ := s.drive(l, func(r Renew) []Event { return []Event{Returned{r.Number}} })
		if len(sends) < 4 || len(sends) > leastPart {
			t.Errorf("TTL %v: %d attempts that failed at once", ttl, len(sends))
		}

		s = newScript(t, Config{})
		l = s.claim(ttl)
		s.step(Granted{Lease: l, TTL: ttl})
		deadline, _ := s.h.Deadline(l)
		sends, abandoned := s.drive(l, func(Renew) []Event { return nil })
		// All are abandoned: at the deadline, or earlier when another hedge replaces them.
		if len(sends) < 4 || len(sends) > leastPart/2 || abandoned != len(sends) {
			t.Errorf("TTL %v: %d unanswered attempts, %d of them abandoned", ttl, len(sends), abandoned)
		}
		for i := range sends[:3] {
			waited := sends[i].Remaining(sends[i+1])
			left := sends[i+1].Remaining(deadline)
			if left < waited || i == 0 && left < 2*waited {
				t.Errorf("TTL %v: attempt %d was overdue after %v, when %v was left", ttl, i, waited, left)
			}
		}
	}
}

// A lease whose attempt failed waits before the next one, even if a message of other leases is sent meanwhile.
func TestFailedLeaseIsNotSentWithOthers(t *testing.T) {
	s := newScript(t, Config{})
	a := s.claim(usual)
	s.step(Granted{Lease: a, TTL: usual})
	r := s.wake(relied / 3)
	b := s.claim(450 * time.Millisecond)
	s.step(Granted{Lease: b, TTL: 450 * time.Millisecond})
	s.step(Returned{r.Number})
	s.wake(150 * time.Millisecond)
	for _, e := range s.got {
		if r, ok := e.(Renew); ok && slices.Contains(r.Leases, a) {
			t.Errorf("sent again though its attempt has just failed: %v", s.got)
		}
	}
}

// A second report that a release failed does not delay the next attempt.
func TestRepeatedReleaseFailureDelaysNoRetry(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	s.step(Releasing{l})
	s.step(ReleaseFailed{l})
	s.clocks.Advance(200 * time.Millisecond)
	s.step(ReleaseFailed{l})
	s.clocks.Advance(50 * time.Millisecond)
	if s.step(Wake{}); !s.has(Resolve{Lease: l, Release: true}) {
		t.Errorf("a quarter of a second later the release is not retried: %v", s.got)
	}
}

// More messages may wait than the Renewer keeps for late answers.
func TestMoreMessagesMayWaitThanAreKept(t *testing.T) {
	s := newScript(t, Config{MaxIDs: 1})
	var leases []Lease
	for range 2 * keptMessages {
		leases = append(leases, s.held())
	}
	s.clocks.Advance(4 * time.Second)
	sent := s.clocks.Now()
	s.step(Wake{})
	for i, e := range s.got {
		if r, ok := e.(Renew); ok {
			s.h.Step(sent, Renewed{r.Number, []Answer{{Lease: r.Leases[0], TTL: usual}}})
			if i%100 == 0 {
				s.h.Step(sent, Returned{r.Number})
			}
		}
	}
	for _, l := range leases {
		s.wantDeadline(l, sent.Add(relied))
	}
	if stats := s.h.Stats(); stats.InFlight != 0 || len(s.h.messages) > keptMessages {
		t.Errorf("%+v, %d messages kept", stats, len(s.h.messages))
	}
}

// The number of messages kept for late answers is bounded.
func TestKeptMessagesAreBounded(t *testing.T) {
	s := newScript(t, Config{MaxIDs: 1})
	for range 2 * keptMessages {
		s.held()
	}
	s.clocks.Advance(4 * time.Second)
	for range 3 { // each time every lease gets a hedge
		s.step(Wake{})
		s.clocks.Advance(2500 * time.Millisecond)
	}
	s.step(Wake{})
	if stats := s.h.Stats(); stats.Abandoned < 2*keptMessages || stats.Hedges < 2*keptMessages || len(s.h.messages) > keptMessages+stats.InFlight {
		t.Errorf("%+v, %d messages kept", stats, len(s.h.messages))
	}
}

// A claim whose outcome stays unknown for days is resolved again and again, at intervals.
func TestUnknownClaimIsResolvedAtIntervals(t *testing.T) {
	s := newScript(t, Config{})
	l := s.claim(240 * time.Hour)
	for range 300 {
		s.step(Unknown{l})
		s.clocks.Advance(firstGap - 1)
		if s.step(Wake{}); s.has(Resolve{Lease: l}) {
			t.Fatal("resolved again at once")
		}
		s.clocks.Advance(longestGap)
		if s.step(Wake{}); !s.has(Resolve{Lease: l}) {
			t.Fatalf("not resolved again: %v", s.got)
		}
	}
}

// Two leases may be due at the same progress and yet at different instants, if the clocks ran apart in between. The
// wake-up is for whichever instant either clock reaches first.
func TestWakeIsRequestedForEitherClock(t *testing.T) {
	s := newScript(t, Config{})
	s.h.config.Drift = 0
	start := s.clocks.Now()
	a := s.claim(12 * time.Second)
	s.step(Granted{Lease: a, TTL: 12 * time.Second})
	s.clocks.Suspend(time.Second)
	b := s.claim(9 * time.Second)
	s.step(Granted{Lease: b, TTL: 9 * time.Second})
	if want := (clock.Instant{Raw: start.Add(3 * time.Second).Raw, Boot: start.Add(4 * time.Second).Boot}); !s.has(WakeAt{want}) {
		t.Errorf("want a wake-up at %v: %v", want, s.got)
	}
}

// A step with an earlier instant does not advance progress a second time.
func TestEarlierInstantsAdvanceNothing(t *testing.T) {
	s := newScript(t, Config{})
	s.held()
	start := s.clocks.Now()
	s.clocks.Advance(3 * time.Second)
	s.step(Wake{})
	s.h.Step(start, Wake{})
	s.clocks.Advance(time.Millisecond)
	if s.step(Wake{}); s.h.number != 0 {
		t.Errorf("renewed before a third has passed: %v", s.got)
	}
}

// An event about a handle or message that never existed is a bug of the driver, not a late event, so Step panics.
func TestUnknownHandlesPanic(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	s.step(Releasing{l})
	s.step(Released{l})
	for _, e := range []Event{
		Released{}, Released{l + 1}, Ended{handle(0, 2)}, Renewed{1, []Answer{{Lease: l}}}, Returned{0}, Returned{1}, nil,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%#v does not panic", e)
				}
			}()
			s.step(e)
		}()
	}
	if s.step(Granted{Lease: l, TTL: usual}); len(s.got) > 0 {
		t.Errorf("an event about a lease that has ended has effects: %v", s.got)
	}
}

func TestInvalidConfigIsRefused(t *testing.T) {
	if _, err := New(Config{MaxIDs: -1, Drift: clock.MaxDrift + 1}); err == nil {
		t.Error("a negative MaxIDs and a drift above the maximum are accepted")
	}
	h, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Claim(clock.Instant{}, MinTTL-1); err != ErrTTL {
		t.Error(err)
	}
}
