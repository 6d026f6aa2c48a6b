package remote

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// What takes too long ends at its own time, sent or not, and nothing else does. A claim in line has been answered.
func TestDemandsExpire(t *testing.T) {
	s := &holdStream{home: new(holds), asked: make(map[uint64]*demand), wake: make(chan struct{}, 1), heard: noMoment, expires: noMoment}
	take := func(wait bool, limit time.Duration) *demand {
		d := &demand{name: "x", ttlMs: 1, wait: wait, done: make(chan struct{}, 1)}
		if !s.take(d, limit) {
			t.Fatal("the stream has ended")
		}
		return d
	}
	inLine, long, short := take(true, time.Minute), take(true, 4*time.Hour), take(false, time.Hour)
	var box outbox
	if !s.fill(&box) || len(box.demands) != 3 {
		t.Fatalf("%d are sent", len(box.demands))
	}
	s.answered([]*leasekeeperv1.HoldAnswer{{Number: inLine.number, State: leasekeeperv1.HoldAnswer_WAITING}})
	<-inLine.done
	late, unsent := take(false, 3*time.Hour), take(false, 2*time.Hour)
	defer s.alarm.Stop()

	is := func(what string, ended bool, all ...*demand) {
		t.Helper()
		for _, d := range all {
			if got := len(d.done) == 1; got != ended || ended && d.err != context.DeadlineExceeded {
				t.Errorf("%s: ended %v, %v", what, got, d.err)
			}
		}
	}
	if s.expires != inLine.until {
		t.Errorf("looked at %v, and not %v", s.expires, inLine.until)
	}
	s.expireAt(inLine.until)
	is("nobody's time", false, inLine, long, short, late, unsent)
	for _, next := range []*demand{short, unsent, late, long} {
		if s.expires != next.until {
			t.Errorf("looked at %v, and not %v", s.expires, next.until)
		}
		s.expireAt(next.until.add(-time.Minute))
		is("before its time", false, next)
		if stalled := s.expireAt(next.until); stalled != (next.since >= s.heard) {
			t.Errorf("stalled: %v", stalled)
		}
		is("at its time", true, next)
	}
	if s.expires != noMoment || len(s.asked) != 1 || len(s.unsent) != 0 || len(s.forget) != 1 {
		t.Errorf("left are %v, %d, %d and %d", s.expires, len(s.asked), len(s.unsent), len(s.forget))
	}
}

// Who may take for ever is not late at once.
func TestMomentsDoNotWrap(t *testing.T) {
	for m, d := range map[moment]time.Duration{1: math.MaxInt64, math.MaxInt64: 1, math.MaxInt64 - 1: 5} {
		if sum := m.add(d); sum != math.MaxInt64 {
			t.Errorf("%d and %d are %d", m, d, sum)
		}
	}
	if sum := moment(7).add(-10); sum != -3 {
		t.Errorf("it is %d", sum)
	}
}
