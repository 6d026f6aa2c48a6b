package keepalive

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/clock"
)

// After every Step, whatever the events and their order, the Renewer agrees with the model about every lease: whether it
// is valid, until when, and which effects it had.
func TestRenewerAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProperty(t)
		t.Repeat(map[string]func(*rapid.T){
			"claim":   p.claim,
			"claim ":  p.claim,
			"answer":  p.answer,
			"answer ": p.answer,
			"renewal": p.renewal,
			"all":     p.all,
			"return":  p.giveUp,
			"event":   p.event,
			"time":    p.time,
			"time ":   p.time,
			"wake":    p.wake,
			"":        p.check,
		})
	})
}

type property struct {
	h            *Renewer
	m            *model
	clocks       *clock.Manual
	maxIDs       int
	sent         map[uint64][]Lease // what is in each message
	waits        map[uint64]bool    // messages that were neither answered, returned nor abandoned
	wakeAt       clock.Instant
	order        []Lease
	refused      map[Lease]bool          // the lease has ended, so Valid must stay false
	failed       map[Lease]clock.Instant // of the last failed attempt
	acknowledged map[Lease]clock.Instant // of the last acknowledged attempt
}

func newProperty(t *rapid.T) *property {
	p := &property{
		maxIDs: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "max ids"),
		clocks: clock.NewManual(clock.Instant{}.Add(time.Hour)),
		sent:   make(map[uint64][]Lease), waits: make(map[uint64]bool), refused: make(map[Lease]bool),
		failed: make(map[Lease]clock.Instant), acknowledged: make(map[Lease]clock.Instant),
	}
	drift := rapid.SampledFrom([]clock.Drift{clock.DefaultDrift, 1, clock.MaxDrift}).Draw(t, "drift")
	h, err := New(Config{Drift: drift, MaxIDs: p.maxIDs, Seed: rapid.Uint64().Draw(t, "seed")})
	if err != nil {
		t.Fatal(err)
	}
	p.h = h
	p.m = &model{drift: drift, leases: make(map[Lease]*modelLease), sent: make(map[uint64]clock.Instant)}
	p.m.forgotten = func(number uint64) bool {
		// The Renewer may forget a message only if a lease no longer waits for it.
		return h.message(number) == nil && !slices.ContainsFunc(p.sent[number], func(l Lease) bool {
			s := h.find(l)
			return s != nil && s.sent == number
		})
	}
	return p
}

var ttls = rapid.SampledFrom([]time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second, time.Minute, 24 * time.Hour})

func (p *property) claim(t *rapid.T) {
	ttl := ttls.Draw(t, "ttl")
	l, err := p.h.Claim(p.clocks.Now(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	if p.m.leases[l] != nil {
		t.Fatalf("%v was used before", l)
	}
	p.m.leases[l] = &modelLease{state: stateClaiming, first: p.clocks.Now(), asked: ttl, newest: p.h.number}
	p.order = append(p.order, l)
	if rapid.Bool().Draw(t, "granted") {
		p.step(t, Granted{Lease: l, TTL: ttl})
	}
}

func (p *property) lease(t *rapid.T) Lease {
	if len(p.order) == 0 {
		t.Skip("no lease")
	}
	return rapid.SampledFrom(p.order).Draw(t, "lease")
}

func (p *property) until(t *rapid.T) clock.Instant {
	if rapid.IntRange(0, 4).Draw(t, "until?") > 0 {
		return clock.Instant{}
	}
	return p.clocks.Now().Add(ttls.Draw(t, "until"))
}

// answer steps with some answer to a claim.
func (p *property) answer(t *rapid.T) {
	l, ttl := p.lease(t), ttls.Draw(t, "ttl")
	p.step(t, rapid.SampledFrom([]Event{
		Granted{l, ttl, p.until(t)}, Queued{l, ttl, p.until(t)}, Refused{l}, Unknown{l},
	}).Draw(t, "answer"))
}

func (p *property) number(t *rapid.T) uint64 {
	if p.h.number == 0 {
		t.Skip("no message")
	}
	newest := int(p.h.number)
	return uint64(rapid.IntRange(max(1, newest-5), newest).Draw(t, "number"))
}

// renewal steps with answers to a recent message about some of its leases, in time or late.
func (p *property) renewal(t *rapid.T) {
	number := p.number(t)
	e := Renewed{Number: number}
	for _, l := range p.sent[number] {
		if rapid.Bool().Draw(t, "answered") {
			a := Answer{Lease: l, TTL: ttls.Draw(t, "ttl"), Until: p.until(t)}
			a.Outcome = rapid.SampledFrom([]Outcome{Acknowledged, Acknowledged, Acknowledged, Failed, Gone}).Draw(t, "outcome")
			switch a.Outcome {
			case Failed:
				p.failed[l] = p.clocks.Now()
			case Acknowledged:
				p.acknowledged[l] = p.clocks.Now()
			}
			e.Answers = append(e.Answers, a)
		}
	}
	p.step(t, e)
}

// all acknowledges every message that waits.
func (p *property) all(t *rapid.T) {
	for _, number := range slices.Sorted(maps.Keys(p.waits)) {
		e := Renewed{Number: number}
		for _, l := range p.sent[number] {
			e.Answers = append(e.Answers, Answer{Lease: l, TTL: 10 * time.Second})
			p.acknowledged[l] = p.clocks.Now()
		}
		delete(p.waits, number)
		p.step(t, e)
	}
}

func (p *property) giveUp(t *rapid.T) {
	number := p.number(t)
	delete(p.waits, number)
	for _, l := range p.sent[number] {
		p.failed[l] = p.clocks.Now()
	}
	p.step(t, Returned{number})
}

func (p *property) event(t *rapid.T) {
	l := p.lease(t)
	p.step(t, rapid.SampledFrom([]Event{Ended{l}, Retire{l}, Releasing{l}, Releasing{l}, Released{l}, ReleaseFailed{l}, ReleaseFailed{l}}).Draw(t, "event"))
}

func (p *property) time(t *rapid.T) {
	d := time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "time"))
	raw, boot := d, d
	switch rapid.IntRange(0, 9).Draw(t, "clocks") {
	case 0:
		raw = 0
	case 1:
		boot /= 2
	case 2:
		boot, raw = d/1000, d/1000
	}
	p.clocks.AdvanceBy(raw, boot)
	p.step(t, Wake{})
}

// wake advances the clocks to the requested wake-up.
func (p *property) wake(t *rapid.T) {
	if left := p.clocks.Now().Remaining(p.wakeAt); left > 0 {
		p.clocks.Advance(left)
	}
	p.step(t, Wake{})
}

func (p *property) step(t *rapid.T, e Event) {
	now := p.clocks.Now()
	p.m.step(now, e)
	for _, f := range p.h.Step(now, e) {
		p.effect(t, now, f)
	}
	for _, l := range p.order {
		p.compare(t, now, l)
	}
}

func (p *property) effect(t *rapid.T, now clock.Instant, f Effect) {
	switch f := f.(type) {
	case Renew:
		if p.m.sent[f.Number] != (clock.Instant{}) || len(f.Leases) == 0 || p.maxIDs > 0 && len(f.Leases) > p.maxIDs {
			t.Fatalf("%v", f)
		}
		p.m.sent[f.Number], p.sent[f.Number], p.waits[f.Number] = now, slices.Clone(f.Leases), true
		for i, l := range f.Leases {
			if m := p.m.leases[l]; m.state != stateHeld && m.state != stateQueued || m.retired || slices.Contains(f.Leases[:i], l) {
				t.Fatalf("%v is renewed: %+v, %v", l, *m, f)
			}
		}
	case Abandon:
		for _, l := range p.sent[f.Number] {
			p.failed[l] = now
		}
		if !p.waits[f.Number] {
			return // it was answered for leases that have ended meanwhile
		}
		delete(p.waits, f.Number)
	case Held:
		m := p.m.leases[f.Lease]
		if m.held--; m.held < 0 || f.Deadline != m.deadline {
			t.Fatalf("%v at %v: %+v", f, now, m)
		}
	case Lost:
		m := p.m.leases[f.Lease]
		void := m.state == stateUnsettled && !now.Before(m.first.Add(p.m.drift.RelyRemote(m.asked)))
		switch {
		case void && f.Cause == Void:
			m.state = stateUnused
		case len(m.lost) == 0 || m.lost[0] != f.Cause:
			t.Fatalf("%v at %v: %+v", f, now, m)
		default:
			m.lost = m.lost[1:]
		}
	case GaveUp:
		m := p.m.leases[f.Lease]
		if m.state != stateReleasing || !m.failed {
			t.Fatalf("%v: %+v", f, m)
		}
		m.state = stateUnused
	case Resolve:
		m := p.m.leases[f.Lease]
		switch {
		case f.Release && m.state == stateReleasing && m.failed:
			m.failed = false
		case !f.Release && m.state == stateUnsettled:
			m.state = stateClaiming
		default:
			t.Fatalf("%v: %+v", f, m)
		}
	case WakeAt:
		p.wakeAt = f.At
	}
}

func (p *property) compare(t *rapid.T, now clock.Instant, l Lease) {
	m := p.m.leases[l]
	if len(m.lost) > 0 {
		t.Fatalf("%v was lost, and no Lost was reported: %+v", l, m)
	}
	if m.held == 1 || m.held == 2 && m.state != stateUnused {
		t.Fatalf("%v is held, and no Held was reported: %+v", l, m)
	}
	m.held = 0
	valid := m.state == stateHeld && !p.m.over(now, m)
	if got := p.h.Valid(now, l); got != valid || got && p.refused[l] {
		t.Fatalf("%v: valid is %v: %+v", l, got, m)
	}
	if m.state == stateUnused {
		p.refused[l] = true
	}
	renews := m.state == stateHeld || m.state == stateQueued
	deadline, ok := p.h.Deadline(l)
	if ok != renews || ok && deadline != m.deadline {
		t.Fatalf("%v: deadline is %v %v: %+v", l, deadline, ok, m)
	}
	s := p.h.find(l)
	if (s == nil) != (m.state == stateUnused) {
		t.Fatalf("%v: %+v", l, m)
	}
	if !renews {
		return
	}
	// The lease is not forgotten: a wake-up is requested in time, and a renewal is under way if one is due.
	if p.wakeAt.Remaining(deadline) < -sameWake {
		t.Fatalf("%v: the wake-up at %v is after the deadline %v", l, p.wakeAt, deadline)
	}
	if m.retired {
		return
	}
	length := s.length
	underWay := false
	// order: irrelevant, the results are combined by or
	for number := range p.waits {
		underWay = underWay || number > m.newest && slices.Contains(p.sent[number], l)
	}
	third := deadline.Add(-(length - length/turns))
	recent := now.Before(p.failed[l].Add(length / gapPart))
	if left := now.Remaining(deadline); left > length/gapPart-length/leastPart-length/gridPart { // enough to wait for other leases
		recent = recent || now.Before(p.acknowledged[l].Add(length/leastPart+length/gridPart))
	}
	if !underWay && !now.Before(third) && !recent && s.sent == 0 {
		t.Fatalf("%v has been due for renewal since %v: %+v", l, third, *s)
	}
}

// check verifies that the queue is a heap, and that every slot knows its index in it.
func (p *property) check(t *rapid.T) {
	h := p.h
	used := 0
	for i := range h.slots {
		if h.slots[i].state != stateUnused {
			used++
			if e := h.queue.entries[h.slots[i].index]; e.slot != uint32(i) {
				t.Fatalf("slot %d is not at its index in the queue", i)
			}
		}
	}
	for i, e := range h.queue.entries {
		if i > 0 && e.before(h.queue.entries[(i-1)/arity]) {
			t.Fatalf("the queue is no heap at %d", i)
		}
		if key := h.dueAt(h.last, &h.slots[e.slot]); e.key > key {
			t.Fatalf("slot %d surfaces at %v and is due at %v", e.slot, e.key, key)
		}
	}
	stats := h.Stats()
	if used != len(h.queue.entries) || used+len(h.free) != len(h.slots) || stats.Claiming+stats.Queued+stats.Held+stats.Releasing != used {
		t.Fatalf("%d used, %d queued, %d free of %d: %+v", used, len(h.queue.entries), len(h.free), len(h.slots), stats)
	}
	if len(h.messages) > keptMessages+used+1 || stats.Renewals < stats.Messages {
		t.Fatalf("%d messages are kept, %+v", len(h.messages), stats)
	}
}

// If little time is left after an answer, the Renewer sends the lease at once. The wait for answers about other leases is
// a part of the whole length, and could be longer than the time left.
func TestAnswerThatLeavesLittleIsFollowedByARenewal(t *testing.T) {
	s := newScript(t, Config{})
	l := s.held()
	first := s.wake(relied / turns)
	s.clocks.Advance(2 * time.Second)
	const left = 10 * time.Millisecond
	until := s.clocks.Now().Add(left)
	for _, e := range s.step(Renewed{first.Number, []Answer{{Lease: l, Until: until}}}) {
		if r, ok := e.(Renew); ok && slices.Contains(r.Leases, l) {
			return
		}
	}
	t.Errorf("with %v left nothing is sent: %v", left, s.got)
}
