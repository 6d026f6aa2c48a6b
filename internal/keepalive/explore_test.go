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

// The exploration visits every state that a small world can get into: a holder with one or two leases (the
// real code), a store that ends a lease as soon as rule C2 lets it, and a network in which every request and
// every answer may come late, twice, in any order or never. Time goes in ticks. The clocks of the two run at
// the bounds of the drift, one at the slowest and the other at the fastest, so the arithmetic has nothing to
// spare; the machine may be suspended, one of its clocks may be slewed far out of bounds, and the process may
// stand still for any while.

// scope is how large the world is.
type scope struct {
	name         string
	leases       int
	ttl          int  // in the store's units; mean divides it by the rates
	holder       int  // units in one tick of the holder's clocks
	store        int  // units in one tick of the store's clock
	line         bool // claims stand in line first
	odd          int  // ticks with suspend or slew
	broken       int  // messages that fail at once
	finds        bool // the store answers a hedge with what it finds of the earlier attempt, as a database does
	short        int  // renewals that are granted a shorter TTL
	window       uint // how many numbers the network remembers
	release      bool
	sure         bool // every claim is answered in the end
	maxIDs       int
	cutoff       int // states; more fail the test
	mostMessages int
}

const unit = time.Millisecond

// drift is 20 %: of a TTL of 36 units the holder relies on 24, and both make six ticks.
const drift clock.Drift = 200_000

const shorter = 18 // the short TTL

// phase is what a lease is in the store.
type phase uint8

const (
	absent phase = iota
	inLine
	itsTurn
	ended
	givenBack
)

// side is one lease outside the holder. Everything in it is small and comparable.
type side struct {
	lease    Lease
	phase    phase
	left     int16 // until the store may end it
	answers  uint8 // that are in the network, once and for all
	requests uint8 // bit i: the message with the number h.number−i may still come to the store
	acks     uint8 // bit i: … was answered, and the answer is in the network once and for all
	shorts   uint8 // bit i: … with the shorter TTL
	found    uint8 // bit i: … and has found that the message before it was taken
	began    bool  // Held was reported
	over     bool  // Lost, GaveUp, or the driver's own end was seen
	gaveBack bool  // Releasing was sent
	tells    uint8 // how often the end was told
}

const (
	saysInLine uint8 = 1 << iota
	saysGranted
	saysGone
	saysReleased
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
	asleep bool             // suspended: nothing runs until a tick of both clocks
	sends  [4]clock.Instant // of the message with the number h.number−i
	wrong  string           // what a step did wrong
	naive  bool             // the driver counts what a hedge has found from the send of the hedge
}

// variant is a holder that makes a mistake.
type variant struct {
	name  string
	bend  func(w *world, l *law)
	scope string // where it shows; the first if empty
	finds string // part of what is found; two holders if empty
}

type explorer struct {
	scope   scope
	variant variant
	seen    map[[2]uint64]int32
	queue   []*world
	from    []int32
	label   []string
	edges   int
	most    int // messages remembered by a holder
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

// visit looks at a state, once.
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

// wrong checks what must always be true.
func (x *explorer) wrong(w *world) string {
	if w.wrong != "" {
		return w.wrong
	}
	if len(w.h.messages) > x.scope.mostMessages {
		return fmt.Sprintf("%d messages are remembered", len(w.h.messages))
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
		case valid && s.phase != itsTurn:
			return "the holder may act, and the store has ended the lease or given the name to another"
		case valid && (s.over || s.gaveBack || !s.began):
			return "the holder may act, though its right has not begun or is over"
		case s.tells > 1:
			return "the end was told twice"
		}
		slot := w.h.find(s.lease)
		if slot == nil {
			if !s.over {
				return "the lease is forgotten and nobody was told"
			}
			continue
		}
		if s.over {
			return "the end was told, and yet there is a lease"
		}
		if what := x.attended(w, slot); what != "" {
			return what
		}
	}
	return ""
}

// attended checks that a lease which is renewed will be, or be lost: somebody wakes the holder in time.
func (x *explorer) attended(w *world, s *slot) string {
	h := w.h
	if !s.renews() {
		return ""
	}
	if h.last.Before(s.instant) && !h.law.over(h.last, s.instant) && h.told > h.in(h.last.Remaining(s.instant)) {
		return "nobody wakes the holder at the deadline"
	}
	if s.sent == 0 && s.next == never {
		return "a lease will never be renewed"
	}
	for _, number := range []uint64{s.sent, s.hedge} {
		if number == 0 {
			continue
		}
		if m := h.message(number); m == nil || !m.waits || !slices.Contains(m.leases, handle(h.queue.entries[s.index].slot, s.use)) {
			return "a lease waits for an answer that nobody waits for"
		}
		if number <= s.acknowledged {
			return "a lease waits for an answer that cannot matter"
		}
	}
	hedged := s.hedge > s.sent && h.message(s.hedge).overdue != never
	if s.sent != 0 && s.next == never && h.message(s.sent).overdue == never && !hedged {
		return "an attempt that is never answered is never hedged"
	}
	return ""
}

// stays checks that the attempt for each lease that is no hedge goes on until it is answered, fails, is overtaken, or its lease
// ends.
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
			return "an attempt was given up before its lease has ended"
		}
	}
	return ""
}

// step lets the holder take in an event, and does what it says.
func (x *explorer) step(w *world, from int32, label string, e func(*world) Event) {
	c := w.clone()
	if x.variant.bend != nil {
		c.h.law = careful
		x.variant.bend(c, &c.h.law)
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
			c.sides[f.Lease.Slot()].tells++
		case GaveUp:
			c.sides[f.Lease.Slot()].over = true
			c.sides[f.Lease.Slot()].tells++
		case WakeAt:
			c.wake, c.sleeps = f.At, true
		}
	}
	mask := uint8(1)<<x.scope.window - 1
	for i := range c.sides {
		s := &c.sides[i]
		s.requests, s.acks, s.shorts, s.found = s.requests&mask, s.acks&mask, s.shorts&mask, s.found&mask
	}
	if x.variant.bend == nil || x.variant.finds != "" { // else it is about two holders
		c.wrong = x.stays(w, c, event)
	}
	x.visit(c, from, label)
}

// expand visits whatever can come next.
func (x *explorer) expand(w *world, from int32) {
	if !slices.ContainsFunc(w.sides[:x.scope.leases], func(s side) bool { return !s.over }) {
		return // nothing is left that could go wrong
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

// pass lets a tick pass.
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
			if s.phase == inLine || s.phase == itsTurn {
				// C2: it ends when the store's clock is strictly past the deadline.
				if s.left -= int16(x.scope.store); s.left < 0 {
					s.phase, s.left = ended, 0
				}
			}
		}
		x.visit(c, from, m.name)
	}
}

// atStore lets the store take in what is in the network.
func (x *explorer) atStore(w *world, from int32, i int) {
	s := &w.sides[i]
	change := func(label string, do func(c *world, s *side)) {
		c := w.clone()
		do(c, &c.sides[i])
		x.visit(c, from, fmt.Sprintf("the store: %s %d", label, i))
	}
	alive := s.phase == inLine || s.phase == itsTurn
	switch {
	case s.phase == absent:
		change("takes the claim", func(c *world, s *side) {
			s.phase, s.left = itsTurn, int16(x.scope.ttl)
			if x.scope.line {
				s.phase = inLine
				s.answers |= saysInLine
			} else {
				s.answers |= saysGranted
			}
		})
	case s.phase == inLine:
		change("it is the turn of", func(c *world, s *side) {
			s.phase = itsTurn
			s.answers |= saysGranted
		})
	}
	if s.gaveBack && s.answers&saysReleased == 0 {
		change("takes the release of", func(c *world, s *side) {
			s.phase, s.left = givenBack, 0
			s.answers |= saysReleased
		})
	}
	for n := range x.scope.window {
		bit := uint8(1) << n
		if s.requests&bit == 0 || s.over {
			continue
		}
		number := w.h.number - uint64(n)
		if before := bit << 1; alive && x.scope.finds && s.acks&before != 0 {
			change(fmt.Sprintf("takes message %d, and finds the one before it, for", number), func(c *world, s *side) {
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
		} else if s.answers&saysGone == 0 {
			change("says gone of", func(c *world, s *side) { s.answers |= saysGone })
		}
	}
}

// atHolder lets the holder take in what is in the network, and the driver what may happen to it.
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
	if s.answers&saysInLine != 0 {
		step("is told: in line", Queued{Lease: l, TTL: ttl}, nil)
	}
	if s.answers&saysGranted != 0 {
		step("is told: yours", Granted{Lease: l, TTL: ttl}, nil)
	}
	slot := w.h.find(l)
	if slot.state == claiming && !x.scope.sure {
		step("does not know about the claim", Unknown{l}, nil)
	}
	if s.answers&saysReleased != 0 && slot.state == releasing {
		step("is told: released", Released{l}, func(s *side) { s.over = true })
	}
	if slot.state == releasing && slot.next == never {
		step("does not know about the release", ReleaseFailed{l}, nil)
	}
	if x.scope.release && !s.gaveBack {
		step("gives back", Releasing{l}, func(s *side) { s.gaveBack = true })
	}
	for n := range x.scope.window {
		number := w.h.number - uint64(n)
		if s.acks&(1<<n) != 0 {
			step(fmt.Sprintf("has the answer to %d for", number), Renewed{number, []Answer{{Lease: l, TTL: ttl}}}, nil)
		}
		if s.found&(1<<n) != 0 {
			x.step(w, from, fmt.Sprintf("has the answer to %d, that the one before was taken, for %d", number, i), func(c *world) Event {
				answer := Answer{Lease: l, TTL: ttl}
				if !c.naive {
					answer.Until = c.sends[n+1].Add(drift.RelyRemote(ttl))
				}
				return Renewed{number, []Answer{answer}}
			})
		}
		if s.shorts&(1<<n) != 0 {
			step(fmt.Sprintf("has the short answer to %d for", number), Renewed{number, []Answer{{Lease: l, TTL: shorter * unit}}}, nil)
		}
		if s.answers&saysGone != 0 && s.requests&(1<<n) != 0 {
			step("is told: gone", Renewed{number, []Answer{{Lease: l, Outcome: Gone}}}, nil)
		}
	}
}

// story tells how a state was come to.
func (x *explorer) story() string {
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
	{name: "odd clocks, in line", leases: 1, ttl: 24, line: true, holder: 4, store: 6, odd: 1, window: 1, sure: true},
	{name: "messages that fail", leases: 1, ttl: 24, holder: 4, store: 6, broken: 4, window: 3},
	{name: "TTLs that change", leases: 1, ttl: 24, holder: 4, store: 6, broken: 1, short: 2, window: 3},
	{name: "hedges that find", leases: 1, ttl: 36, holder: 4, store: 6, window: 3, finds: true},
	{name: "release", leases: 1, ttl: 24, holder: 4, store: 6, window: 2, broken: 1, release: true},
	{name: "in line", leases: 1, ttl: 24, line: true, holder: 4, store: 6, window: 2},
	{name: "two leases", leases: 2, ttl: 24, holder: 4, store: 6, window: 1},
	{name: "two leases, one id a message", leases: 2, ttl: 24, holder: 4, store: 6, window: 1, maxIDs: 1},
}

func TestExploration(t *testing.T) {
	states, edges, began := 0, 0, time.Now()
	for _, s := range scopes {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			s.cutoff, s.mostMessages = 600_000, 12
			x := explore(s, variant{})
			if x.failed >= 0 {
				t.Fatalf("after %d states:\n%s", len(x.queue), x.story())
			}
			states, edges = states+len(x.queue), edges+x.edges
			t.Logf("%d states, %d transitions, all of them; at most %d messages were remembered", len(x.queue), x.edges, x.most)
		})
	}
	t.Logf("%d states and %d transitions in %v", states, edges, time.Since(began).Round(10*time.Millisecond))
}

// variants are the mistakes of other libraries.
var variants = []variant{
	{name: "counts from the answer", bend: func(w *world, l *law) {
		l.from = func(_, arrival clock.Instant) clock.Instant { return arrival }
	}},
	{name: "counts from the retry", bend: func(w *world, l *law) {
		l.from = func(_, _ clock.Instant) clock.Instant { return w.newest }
	}},
	{name: "counts from yours", scope: "in line", bend: func(w *world, l *law) {
		l.yours = func(_, arrival clock.Instant, length time.Duration) clock.Instant { return arrival.Add(length) }
	}},
	{name: "gives a late old answer to the newest message", bend: func(w *world, l *law) {
		l.counts = func(number, acknowledged uint64) bool { return true }
		l.from = func(first, _ clock.Instant) clock.Instant {
			if w.h.stats.Messages == 0 {
				return first
			}
			return w.newest
		}
	}},
	{name: "looks at the raw clock only", scope: "odd clocks", bend: func(w *world, l *law) {
		l.over = func(now, deadline clock.Instant) bool { return now.Raw >= deadline.Raw }
	}},
	{name: "looks at the boot clock only", scope: "odd clocks", bend: func(w *world, l *law) {
		l.over = func(now, deadline clock.Instant) bool { return now.Boot >= deadline.Boot }
	}},
	{name: "makes no allowance for drift", bend: func(w *world, l *law) {
		l.relies = func(_ clock.Drift, ttl time.Duration) time.Duration { return ttl }
	}},
	{name: "counts what a hedge has found from the send of the hedge", scope: "hedges that find", bend: func(w *world, _ *law) {
		w.naive = true
	}},
	{name: "gives up an attempt that is overdue", finds: "an attempt was given up", bend: func(_ *world, l *law) {
		l.stays = func(bool) bool { return false }
	}},
	{name: "keeps a hedge that is overdue", finds: "messages wait", bend: func(_ *world, l *law) {
		l.stays = func(bool) bool { return true }
	}},
	{name: "keeps an attempt that was overtaken", finds: "that cannot matter", bend: func(_ *world, l *law) {
		l.overtaken = func(_, _ uint64) bool { return false }
	}},
}

// Every mistake is found in the scope named, or in the first.
func TestExplorationCatches(t *testing.T) {
	for _, v := range variants {
		t.Run(strings.ReplaceAll(v.name, " ", "-"), func(t *testing.T) {
			s := scopes[0]
			if v.scope != "" {
				s = scopes[slices.IndexFunc(scopes, func(s scope) bool { return s.name == v.scope })]
			}
			s.cutoff, s.mostMessages = 600_000, 12
			x := explore(s, v)
			if x.failed < 0 || !strings.Contains(x.failure, cmp.Or(v.finds, "the store has ended the lease")) {
				t.Fatalf("a holder that %s is not caught in %d states: %s", v.name, len(x.queue), x.failure)
			}
			t.Logf("a holder that %s is caught after %d states:\n%s", v.name, len(x.queue), x.story())
		})
	}
}
