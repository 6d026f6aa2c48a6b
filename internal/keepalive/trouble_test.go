package keepalive

import (
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// drive does what the holder asks until it asks for nothing or the lease is lost, and hands each message to
// answer, whose events come at once.
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
	s.t.Fatal("it goes on for ever")
	return nil, 0
}

// Attempts are bounded in number, whether they fail at once or are not answered at all. The first is waited for during
// a third of what was left, a hedge during half of it.
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
		// All are given up at the deadline, or before that to make room for the next.
		if len(sends) < 4 || len(sends) > leastPart/2 || abandoned != len(sends) {
			t.Errorf("TTL %v: %d attempts without an answer, %d given up", ttl, len(sends), abandoned)
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

// A lease in trouble keeps its distance also when others have their turn.
func TestTroubleKeepsItsDistance(t *testing.T) {
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
			t.Errorf("sent again though its attempt failed just now: %v", s.got)
		}
	}
}

// Hearing twice that a release failed does not put off the next attempt.
func TestReleaseFailedTwice(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	s.step(Releasing{l})
	s.step(ReleaseFailed{l})
	s.clocks.Advance(200 * time.Millisecond)
	s.step(ReleaseFailed{l})
	s.clocks.Advance(50 * time.Millisecond)
	if s.step(Wake{}); !s.has(Resolve{Lease: l, Release: true}) {
		t.Errorf("after a quarter of a second: %v", s.got)
	}
}

// More messages may wait than are remembered for late answers.
func TestManyMessagesWait(t *testing.T) {
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
		t.Errorf("%+v, %d remembered", stats, len(s.h.messages))
	}
}

// Of those that nobody waits for any more only so many are remembered.
func TestMessagesAreForgotten(t *testing.T) {
	s := newScript(t, Config{MaxIDs: 1})
	for range 2 * keptMessages {
		s.held()
	}
	s.clocks.Advance(4 * time.Second)
	for range 3 { // with a hedge for each, then another one, and so on
		s.step(Wake{})
		s.clocks.Advance(2500 * time.Millisecond)
	}
	s.step(Wake{})
	if stats := s.h.Stats(); stats.Abandoned < 2*keptMessages || stats.Hedges < 2*keptMessages || len(s.h.messages) > keptMessages+stats.InFlight {
		t.Errorf("%+v, %d remembered", stats, len(s.h.messages))
	}
}

// A claim that stays unknown for days is asked about again and again, but not in a hurry.
func TestUnknownForDays(t *testing.T) {
	s := newScript(t, Config{})
	l := s.claim(240 * time.Hour)
	for range 300 {
		s.step(Unknown{l})
		s.clocks.Advance(firstGap - 1)
		if s.step(Wake{}); s.has(Resolve{Lease: l}) {
			t.Fatal("asked again at once")
		}
		s.clocks.Advance(longestGap)
		if s.step(Wake{}); !s.has(Resolve{Lease: l}) {
			t.Fatalf("not asked again: %v", s.got)
		}
	}
}

// Two leases may be due after the same progress and yet at different instants, if the clocks disagreed in
// between. The wake-up is for the first on either clock.
func TestWokenForEitherClock(t *testing.T) {
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

// Time that was seen twice is not counted twice.
func TestEarlierNow(t *testing.T) {
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

// What was never made is a mistake of the driver, and not a late event.
func TestUnknownLeasesPanic(t *testing.T) {
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
					t.Errorf("%#v is taken for something", e)
				}
			}()
			s.step(e)
		}()
	}
	if s.step(Granted{Lease: l, TTL: usual}); len(s.got) > 0 {
		t.Errorf("late: %v", s.got)
	}
}

func TestConfig(t *testing.T) {
	if _, err := New(Config{MaxIDs: -1, Drift: clock.MaxDrift + 1}); err == nil {
		t.Error("accepted")
	}
	h, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Claim(clock.Instant{}, MinTTL-1); err != ErrTTL {
		t.Error(err)
	}
}
