package remote

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// A call that takes too long ends at its own time, whether it was sent or not. A claim that waits in the queue has its first
// answer, and does not end.
func TestSlowHoldCallsExpireAtTheirOwnTime(t *testing.T) {
	s := &holdStream{expires: noMoment}
	s.muxStream = &muxStream[*holdCall]{protocol: s, asked: make(map[uint64]*holdCall), wake: make(chan struct{}, 1), heard: noMoment}
	take := func(wait bool, limit time.Duration) *holdCall {
		c := &holdCall{name: "x", ttlMs: 1, wait: wait, limit: limit, done: make(chan struct{}, 1)}
		if !s.take(c) {
			t.Fatal("the stream has ended")
		}
		return c
	}
	queued, long, short := take(true, time.Minute), take(true, 4*time.Hour), take(false, time.Hour)
	if !s.fill() || len(s.outbox.calls) != 3 {
		t.Fatalf("%d are sent", len(s.outbox.calls))
	}
	s.heard = now()
	s.response.Answers = []*leasekeeperv1.HoldAnswer{{Number: queued.number, State: leasekeeperv1.HoldAnswer_WAITING}}
	s.answer()
	<-queued.done
	late, unsent := take(false, 3*time.Hour), take(false, 2*time.Hour)
	defer s.alarm.Stop()

	check := func(when string, ended bool, all ...*holdCall) {
		t.Helper()
		for _, c := range all {
			if got := len(c.done) == 1; got != ended || ended && c.err != context.DeadlineExceeded {
				t.Errorf("%s: ended %v, %v", when, got, c.err)
			}
		}
	}
	if s.expires != queued.until {
		t.Errorf("the alarm is set for %v, want %v", s.expires, queued.until)
	}
	s.expireAt(queued.until)
	check("before all", false, queued, long, short, late, unsent)
	for _, next := range []*holdCall{short, unsent, late, long} {
		if s.expires != next.until {
			t.Errorf("the alarm is set for %v, want %v", s.expires, next.until)
		}
		s.expireAt(next.until.add(-time.Minute))
		check("before its time", false, next)
		if silent := s.expireAt(next.until); silent != (next.since >= s.heard) {
			t.Errorf("silent: %v", silent)
		}
		check("at its time", true, next)
	}
	if s.expires != noMoment || len(s.asked) != 1 || len(s.unsent) != 0 || len(s.forget) != 1 {
		t.Errorf("left are %v, %d, %d and %d", s.expires, len(s.asked), len(s.unsent), len(s.forget))
	}
}

// A call without a limit does not expire at once.
func TestMomentsDoNotOverflow(t *testing.T) {
	for m, d := range map[moment]time.Duration{1: math.MaxInt64, math.MaxInt64: 1, math.MaxInt64 - 1: 5} {
		if sum := m.add(d); sum != math.MaxInt64 {
			t.Errorf("%d and %d are %d", m, d, sum)
		}
	}
	if sum := moment(7).add(-10); sum != -3 {
		t.Errorf("7 and -10 are %d", sum)
	}
}
