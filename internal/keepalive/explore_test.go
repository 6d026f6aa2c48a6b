package keepalive

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// The exploration visits every reachable state of a small world. The world has:
//
//   - a holder with one or two leases, which is the real Renewer,
//   - a store that ends a lease as soon as rule C2 permits,
//   - a network in which every request and answer may come late, twice, in any order or never.
//
// Time advances in ticks. The clocks of the holder and of the store run at the bounds of the drift, one at the slowest
// rate and the other at the fastest, so that no reserve hides a mistake. The machine may be suspended, one of its clocks
// may be slewed far out of bounds, and the process may pause for any time.

// scope bounds the world.
type scope struct {
	name         string
	leases       int
	ttl          int  // in the store's units; mean divides it by the rates
	holder       int  // units in one tick of the holder's clocks
	store        int  // units in one tick of the store's clock
	queued       bool // claims wait in the queue first
	odd          int  // how many ticks may have suspend or slew
	broken       int  // how many messages may fail at once
	finds        bool // the store answers a hedge with the outcome of the earlier attempt, as a database does
	short        int  // how many renewals the store may grant a shorter TTL
	window       uint // how many of the newest messages the network still has
	release      bool
	sure         bool // no claim has an unknown outcome
	maxIDs       int
	cutoff       int // the test fails if there are more states
	mostMessages int
}

const unit = time.Millisecond

// drift is 20 %: of a TTL of 36 units the holder can rely on 24. Either is six ticks, on the store's clock and the holder's.
const drift clock.Drift = 200_000

const shorter = 18 // the shorter TTL, in units

// phase is the state of a lease in the store.
type phase uint8

const (
	phaseAbsent phase = iota
	phaseQueued
	phaseHeld
	phaseEnded
	phaseReleased
)

// side is what the store, the network and the driver know of one lease.
type side struct {
	lease    Lease
	phase    phase
	left     int16 // until the store may end it
	answers  uint8 // a set of answer… flags: answers that the network has, and keeps
	requests uint8 // bit i: the message with the number h.number−i may still reach the store
	acks     uint8 // bit i: … was answered, and the network keeps the answer
	shorts   uint8 // bit i: … with the shorter TTL
	found    uint8 // bit i: … with the outcome of the message before it
	began    bool  // Held was reported
	over     bool  // Lost or GaveUp was reported, or the driver received the release's answer
	released bool  // the driver sent Releasing
	reports  uint8 // how often Lost or GaveUp was reported
}

const (
	answerQueued uint8 = 1 << iota
	answerGranted
	answerGone
	answerReleased
)

type world struct {
	h      *Renewer
	now    clock.Instant
	wake   clock.Instant
	sleeps bool // wake is set
	sides  [2]side
	newest clock.Instant
	odd    int
	broken int
	short  int
	asleep bool             // suspended: the holder runs again after a tick of both clocks
	sends  [4]clock.Instant // of the message with the number h.number−i
	wrong  string           // what is wrong with the last step; empty if nothing is
	naive  bool             // the driver counts a found outcome from the send of the hedge, which is a mistake
}

// variant is a holder with one mistake, or the correct holder if it is zero.
type variant struct {
	name  string
	bend  func(w *world, l *rules)
	scope string // the scope in which the mistake shows; the first if empty
	finds string // part of the violation; if empty, that two clients may act at once
}

type explorer struct {
	scope   scope
	variant variant
	seen    map[[2]uint64]int32
	queue   []*world
	from    []int32
	label   []string
	edges   int
	most    int // the most messages that a holder kept
	seeds   [2]maphash.Seed
	buffer  []byte
	failure string
	failed  int32
}

func explore(s scope, v variant) *explorer {
	x := &explorer{scope: s, variant: v, seen: make(map[[2]uint64]int32), failed: -1}
	x.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	h, err := New(Config{Drift: drift, MaxIDs: s.maxIDs, steady: true})
	if err != nil {
		panic(err)
	}
	w := &world{h: h, odd: s.odd, broken: s.broken, short: s.short}
	w.now = clock.Instant{}.Add(time.Hour)
	for i := range s.leases {
		l, err := h.Claim(w.now, time.Duration(s.ttl)*unit)
		if err != nil {
			panic(err)
		}
		w.sides[i].lease = l
	}
	w.newest = w.now
	x.visit(w, -1, "claim")
	for at := 0; at < len(x.queue) && x.failed < 0; at++ {
		w := x.queue[at]
		x.queue[at] = nil
		x.expand(w, int32(at))
		if len(x.queue) > s.cutoff {
			x.fail(int32(at), fmt.Sprintf("the scope has more than %d states", s.cutoff))
		}
	}
	return x
}

// visit checks a state and queues it, unless it was visited before.
func (x *explorer) visit(w *world, from int32, label string) {
	x.edges++
	key := x.fingerprint(w)
	if _, ok := x.seen[key]; ok || x.failed >= 0 {
		return
	}
	id := int32(len(x.queue))
	x.seen[key] = id
	x.queue, x.from, x.label = append(x.queue, w), append(x.from, from), append(x.label, label)
	x.most = max(x.most, len(w.h.messages))
	if what := x.wrong(w); what != "" {
		x.fail(id, what)
	}
}

func (x *explorer) fail(id int32, what string) { x.failed, x.failure = id, what }

// wrong returns what is wrong with a state, or nothing.
func (x *explorer) wrong(w *world) string {
	if w.wrong != "" {
		return w.wrong
	}
	if len(w.h.messages) > x.scope.mostMessages {
		return fmt.Sprintf("%d messages are kept", len(w.h.messages))
	}
	waiting := 0
	for i := range w.h.messages {
		if w.h.messages[i].waits {
			waiting++
		}
	}
	if waiting > 2*x.scope.leases {
		return fmt.Sprintf("%d messages wait", waiting)
	}
	for i := range w.sides[:x.scope.leases] {
		s := &w.sides[i]
		valid := w.h.Valid(w.now, s.lease)
		switch {
		case valid && s.phase != phaseHeld:
			return "the holder may act, and the store has ended the lease or given the name to another"
		case valid && (s.over || s.released || !s.began):
			return "the holder may act, though its right has not begun or is over"
		case s.reports > 1:
			return "the end was reported twice"
		}
		slot := w.h.find(s.lease)
		if slot == nil {
			if !s.over {
				return "the lease is forgotten, and its end was not reported"
			}
			continue
		}
		if s.over {
			return "the end was reported, but the lease still exists"
		}
		if what := x.attended(w, slot); what != "" {
			return what
		}
	}
	return ""
}

// attended checks that a held or queued lease will be renewed or lost: a wake-up is requested in time, or an answer is
// expected.
func (x *explorer) attended(w *world, s *slot) string {
	h := w.h
	if !s.renews() {
		return ""
	}
	if h.last.Before(s.instant) && !h.rules.expired(h.last, s.instant) && h.scheduledWake > h.progressAfter(h.last.Remaining(s.instant)) {
		return "no wake-up is requested for the deadline"
	}
	if s.sent == 0 && s.next == never {
		return "a lease will never be renewed"
	}
	for _, number := range []uint64{s.sent, s.hedge} {
		if number == 0 {
			continue
		}
		if m := h.message(number); m == nil || !m.waits || !slices.Contains(m.leases, handle(h.queue.entries[s.index].slot, s.use)) {
			return "a lease waits for a message that no longer waits"
		}
		if number <= s.acknowledged {
			return "a lease waits for an answer that cannot change anything"
		}
	}
	hedged := s.hedge > s.sent && h.message(s.hedge).overdue != never
	if s.sent != 0 && s.next == never && h.message(s.sent).overdue == never && !hedged {
		return "an attempt that is never answered is never hedged"
	}
	return ""
}

// stays checks that an attempt that is no hedge goes on until it is answered or fails, a younger attempt is acknowledged,
// or its lease ends.
func (x *explorer) stays(before, after *world, e Event) string {
	settled := uint64(0)
	switch e := e.(type) {
	case Renewed:
		settled = e.Number
	case Returned:
		settled = e.Number
	}
	for i := range before.sides[:x.scope.leases] {
		l := before.sides[i].lease
		old, s := before.h.find(l), after.h.find(l)
		if old == nil || s == nil || !old.renews() || !s.renews() || old.sent == 0 || old.sent == settled {
			continue
		}
		if s.sent != old.sent && s.acknowledged < old.sent {
			return "an attempt was given up before its lease ended"
		}
	}
	return ""
}

// step runs one Step of the holder and carries out its effects.
func (x *explorer) step(w *world, from int32, label string, e func(*world) Event) {
	c := w.clone()
	if x.variant.bend != nil {
		c.h.rules = strictRules
		x.variant.bend(c, &c.h.rules)
	}
	event := e(c)
	for _, effect := range c.h.Step(c.now, event) {
		switch f := effect.(type) {
		case Renew:
			copy(c.sends[1:], c.sends[:])
			c.sends[0] = c.now
			for i := range c.sides {
				s := &c.sides[i]
				s.requests, s.acks, s.shorts, s.found = s.requests<<1, s.acks<<1, s.shorts<<1, s.found<<1
				if slices.Contains(f.Leases, s.lease) {
					s.requests |= 1
				}
			}
			c.newest = c.now
		case Resolve:
			if !f.Release {
				c.newest = c.now
			}
		case Held:
			c.sides[f.Lease.Slot()].began = true
		case Lost:
			c.sides[f.Lease.Slot()].over = true
			c.sides[f.Lease.Slot()].reports++
		case GaveUp:
			c.sides[f.Lease.Slot()].over = true
			c.sides[f.Lease.Slot()].reports++
		case WakeAt:
			c.wake, c.sleeps = f.At, true
		}
	}
	mask := uint8(1)<<x.scope.window - 1
	for i := range c.sides {
		s := &c.sides[i]
		s.requests, s.acks, s.shorts, s.found = s.requests&mask, s.acks&mask, s.shorts&mask, s.found&mask
	}
	if x.variant.bend == nil || x.variant.finds != "" { // other variants only show that two clients may act at once
		c.wrong = x.stays(w, c, event)
	}
	x.visit(c, from, label)
}

// expand visits all successors of a state.
func (x *explorer) expand(w *world, from int32) {
	if !slices.ContainsFunc(w.sides[:x.scope.leases], func(s side) bool { return !s.over }) {
		return // all leases have ended
	}
	x.pass(w, from)
	for i := range w.sides[:x.scope.leases] {
		x.atStore(w, from, i)
		if !w.asleep {
			x.atHolder(w, from, i)
		}
	}
	if w.asleep {
		return
	}
	if w.sleeps && !w.now.Before(w.wake) {
		x.step(w, from, "wake", func(c *world) Event {
			c.sleeps = false
			return Wake{}
		})
	}
	for n := range x.scope.window {
		if number := w.h.number - uint64(n); w.broken > 0 && number > 0 && uint64(n) < w.h.number {
			if m := w.h.message(number); m != nil && m.waits {
				x.step(w, from, fmt.Sprintf("message %d fails", number), func(c *world) Event {
					c.broken--
					return Returned{number}
				})
			}
		}
	}
}

// pass advances the time by a tick, in each possible way.
func (x *explorer) pass(w *world, from int32) {
	tick := time.Duration(x.scope.holder) * unit
	modes := []struct {
		name      string
		raw, boot time.Duration
		odd       int
		asleep    bool
	}{
		{"a tick", tick, tick, 0, false},
		{"a tick in suspend", 0, tick, 1, true},
		{"a tick, the boot clock is slewed to a crawl", tick, 0, 1, false},
		{"a tick, the boot clock is slewed ahead", tick, 2 * tick, 1, false},
	}
	for _, m := range modes {
		if m.odd > w.odd {
			continue
		}
		c := w.clone()
		c.odd -= m.odd
		c.asleep = m.asleep
		c.now.Raw += int64(m.raw)
		c.now.Boot += int64(m.boot)
		for i := range c.sides[:x.scope.leases] {
			s := &c.sides[i]
			if s.phase == phaseQueued || s.phase == phaseHeld {
				// Rule C2: the lease ends when the store's clock is strictly past the deadline.
				if s.left -= int16(x.scope.store); s.left < 0 {
					s.phase, s.left = phaseEnded, 0
				}
			}
		}
		x.visit(c, from, m.name)
	}
}

// atStore delivers each request that the network has to the store.
func (x *explorer) atStore(w *world, from int32, i int) {
	s := &w.sides[i]
	change := func(label string, do func(c *world, s *side)) {
		c := w.clone()
		do(c, &c.sides[i])
		x.visit(c, from, fmt.Sprintf("the store: %s %d", label, i))
	}
	alive := s.phase == phaseQueued || s.phase == phaseHeld
	switch {
	case s.phase == phaseAbsent:
		change("takes the claim", func(c *world, s *side) {
			s.phase, s.left = phaseHeld, int16(x.scope.ttl)
			if x.scope.queued {
				s.phase = phaseQueued
				s.answers |= answerQueued
			} else {
				s.answers |= answerGranted
			}
		})
	case s.phase == phaseQueued:
		change("grants", func(c *world, s *side) {
			s.phase = phaseHeld
			s.answers |= answerGranted
		})
	}
	if s.released && s.answers&answerReleased == 0 {
		change("takes the release of", func(c *world, s *side) {
			s.phase, s.left = phaseReleased, 0
			s.answers |= answerReleased
		})
	}
	for n := range x.scope.window {
		bit := uint8(1) << n
		if s.requests&bit == 0 || s.over {
			continue
		}
		number := w.h.number - uint64(n)
		if before := bit << 1; alive && x.scope.finds && s.acks&before != 0 {
			change(fmt.Sprintf("takes message %d, and finds the outcome of the one before, for", number), func(c *world, s *side) {
				s.requests, s.found = s.requests&^bit, s.found|bit
			})
		}
		if alive {
			change(fmt.Sprintf("takes message %d for", number), func(c *world, s *side) {
				s.left = max(s.left, int16(x.scope.ttl))
				s.requests, s.acks = s.requests&^bit, s.acks|bit
			})
			if w.short > 0 {
				change(fmt.Sprintf("takes message %d, with a short TTL, for", number), func(c *world, s *side) {
					c.short--
					s.left = max(s.left, shorter)
					s.requests, s.shorts = s.requests&^bit, s.shorts|bit
				})
			}
		} else if s.answers&answerGone == 0 {
			change("answers gone for", func(c *world, s *side) { s.answers |= answerGone })
		}
	}
}

// atHolder delivers each answer that the network has to the holder, and lets the driver release leases and lose answers.
func (x *explorer) atHolder(w *world, from int32, i int) {
	s := &w.sides[i]
	if s.over {
		return
	}
	l, ttl := s.lease, time.Duration(x.scope.ttl)*unit
	step := func(label string, e Event, also func(s *side)) {
		x.step(w, from, fmt.Sprintf("%s %d", label, i), func(c *world) Event {
			if also != nil {
				also(&c.sides[i])
			}
			return e
		})
	}
	if s.answers&answerQueued != 0 {
		step("queued:", Queued{Lease: l, TTL: ttl}, nil)
	}
	if s.answers&answerGranted != 0 {
		step("granted:", Granted{Lease: l, TTL: ttl}, nil)
	}
	slot := w.h.find(l)
	if slot.state == stateClaiming && !x.scope.sure {
		step("outcome unknown of the claim of", Unknown{l}, nil)
	}
	if s.answers&answerReleased != 0 && slot.state == stateReleasing {
		step("released:", Released{l}, func(s *side) { s.over = true })
	}
	if slot.state == stateReleasing && slot.next == never {
		step("release failed of", ReleaseFailed{l}, nil)
	}
	if x.scope.release && !s.released {
		step("releases", Releasing{l}, func(s *side) { s.released = true })
	}
	for n := range x.scope.window {
		number := w.h.number - uint64(n)
		if s.acks&(1<<n) != 0 {
			step(fmt.Sprintf("answer to message %d for", number), Renewed{number, []Answer{{Lease: l, TTL: ttl}}}, nil)
		}
		if s.found&(1<<n) != 0 {
			x.step(w, from, fmt.Sprintf("answer to message %d with the outcome of the one before, for %d", number, i), func(c *world) Event {
				answer := Answer{Lease: l, TTL: ttl}
				if !c.naive {
					answer.Until = c.sends[n+1].Add(drift.RelyRemote(ttl))
				}
				return Renewed{number, []Answer{answer}}
			})
		}
		if s.shorts&(1<<n) != 0 {
			step(fmt.Sprintf("answer to message %d with the shorter TTL for", number), Renewed{number, []Answer{{Lease: l, TTL: shorter * unit}}}, nil)
		}
		if s.answers&answerGone != 0 && s.requests&(1<<n) != 0 {
			step("gone:", Renewed{number, []Answer{{Lease: l, Outcome: Gone}}}, nil)
		}
	}
}

// path returns the steps that led to the violation.
func (x *explorer) path() string {
	var lines []string
	for id := x.failed; id >= 0; id = x.from[id] {
		lines = append(lines, "  "+x.label[id])
	}
	slices.Reverse(lines)
	return strings.Join(append(lines, "  WRONG: "+x.failure), "\n")
}

var scopes = []scope{
	{name: "six ticks", leases: 1, ttl: 36, holder: 4, store: 6, window: 2, broken: 1},
	{name: "fast holder", leases: 1, ttl: 36, holder: 6, store: 4, window: 2},
	{name: "odd clocks", leases: 1, ttl: 24, holder: 4, store: 6, odd: 2, broken: 1, window: 2},
	{name: "odd clocks, queued", leases: 1, ttl: 24, queued: true, holder: 4, store: 6, odd: 1, window: 1, sure: true},
	{name: "messages that fail", leases: 1, ttl: 24, holder: 4, store: 6, broken: 4, window: 3},
	{name: "TTLs that change", leases: 1, ttl: 24, holder: 4, store: 6, broken: 1, short: 2, window: 3},
	{name: "hedges that find", leases: 1, ttl: 36, holder: 4, store: 6, window: 3, finds: true},
	{name: "release", leases: 1, ttl: 24, holder: 4, store: 6, window: 2, broken: 1, release: true},
	{name: "queued", leases: 1, ttl: 24, queued: true, holder: 4, store: 6, window: 2},
	{name: "two leases", leases: 2, ttl: 24, holder: 4, store: 6, window: 1},
	{name: "two leases, one id a message", leases: 2, ttl: 24, holder: 4, store: 6, window: 1, maxIDs: 1},
}

func TestExplorationFindsNoViolation(t *testing.T) {
	states, edges, began := 0, 0, time.Now()
	for _, s := range scopes {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			s.cutoff, s.mostMessages = 600_000, 12
			x := explore(s, variant{})
			if x.failed >= 0 {
				t.Fatalf("after %d states:\n%s", len(x.queue), x.path())
			}
			states, edges = states+len(x.queue), edges+x.edges
			t.Logf("%d states, %d transitions, complete; at most %d messages were kept", len(x.queue), x.edges, x.most)
		})
	}
	t.Logf("%d states and %d transitions in %v", states, edges, time.Since(began).Round(10*time.Millisecond))
}

// variants are mistakes that other libraries make.
var variants = []variant{
	{name: "counts from the answer", bend: func(w *world, l *rules) {
		l.from = func(_, arrival clock.Instant) clock.Instant { return arrival }
	}},
	{name: "counts from the retry", bend: func(w *world, l *rules) {
		l.from = func(_, _ clock.Instant) clock.Instant { return w.newest }
	}},
	{name: "counts from the grant", scope: "queued", bend: func(w *world, l *rules) {
		l.fromQueue = func(_, arrival clock.Instant, length time.Duration) clock.Instant { return arrival.Add(length) }
	}},
	{name: "gives a late old answer to the newest message", bend: func(w *world, l *rules) {
		l.counts = func(number, acknowledged uint64) bool { return true }
		l.from = func(first, _ clock.Instant) clock.Instant {
			if w.h.stats.Messages == 0 {
				return first
			}
			return w.newest
		}
	}},
	{name: "looks at the raw clock only", scope: "odd clocks", bend: func(w *world, l *rules) {
		l.expired = func(now, deadline clock.Instant) bool { return now.Raw >= deadline.Raw }
	}},
	{name: "looks at the boot clock only", scope: "odd clocks", bend: func(w *world, l *rules) {
		l.expired = func(now, deadline clock.Instant) bool { return now.Boot >= deadline.Boot }
	}},
	{name: "makes no allowance for drift", bend: func(w *world, l *rules) {
		l.trusted = func(_ clock.Drift, ttl time.Duration) time.Duration { return ttl }
	}},
	{name: "counts what a hedge has found from the send of the hedge", scope: "hedges that find", bend: func(w *world, _ *rules) {
		w.naive = true
	}},
	{name: "gives up an attempt that is overdue", finds: "an attempt was given up", bend: func(_ *world, l *rules) {
		l.stays = func(bool) bool { return false }
	}},
	{name: "keeps a hedge that is overdue", finds: "messages wait", bend: func(_ *world, l *rules) {
		l.stays = func(bool) bool { return true }
	}},
	{name: "keeps an attempt that was superseded", finds: "that cannot change anything", bend: func(_ *world, l *rules) {
		l.superseded = func(_, _ uint64) bool { return false }
	}},
}

// The exploration finds every mistake in the scope that the variant names.
func TestExplorationFindsKnownMistakes(t *testing.T) {
	for _, v := range variants {
		t.Run(strings.ReplaceAll(v.name, " ", "-"), func(t *testing.T) {
			s := scopes[0]
			if v.scope != "" {
				s = scopes[slices.IndexFunc(scopes, func(s scope) bool { return s.name == v.scope })]
			}
			s.cutoff, s.mostMessages = 600_000, 12
			x := explore(s, v)
			if x.failed < 0 || !strings.Contains(x.failure, cmp.Or(v.finds, "the store has ended the lease")) {
				t.Fatalf("the mistake of a holder that %s is not found in %d states: %s", v.name, len(x.queue), x.failure)
			}
			t.Logf("the mistake of a holder that %s is found after %d states:\n%s", v.name, len(x.queue), x.path())
		})
	}
}
