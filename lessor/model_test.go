package lessor

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/clock"
)

// model is a lessor that is too simple to be wrong: a list of leases, looked through from one end to the
// other, and a list of reigns that is never pruned.
type model struct {
	leases      []*modelLease
	reigns      []Reign
	checkpoints bool
	primary     bool
	term        uint64
	extend      time.Duration
	clears      []Ref
}

type modelLease struct {
	Record
	items                                      []string
	deadline                                   clock.Instant
	going, doubt, inFlight, queued, sent, long bool
}

func (m *model) find(id ID) *modelLease {
	for _, l := range m.leases {
		if l.ID == id {
			return l
		}
	}
	return nil
}

func (m *model) findRef(r Ref) *modelLease {
	if l := m.find(r.ID); l != nil && l.Generation == r.Generation {
		return l
	}
	return nil
}

func (m *model) remove(l *modelLease) {
	m.leases = slices.DeleteFunc(m.leases, func(other *modelLease) bool { return other == l })
}

func (m *model) checkpointOf(l *modelLease) (time.Duration, clock.Instant, bool) {
	if !m.checkpoints {
		return l.TTL, clock.Instant{}, false
	}
	if l.Checkpointed {
		return l.Remaining, l.Applied, true
	}
	for _, r := range m.reigns {
		if r.Start > l.Cleared {
			return l.TTL, r.Applied, true
		}
	}
	return l.TTL, clock.Instant{}, false
}

func (m *model) grant(id ID, ttl time.Duration, at Position, now clock.Instant) error {
	switch {
	case id == NoLease:
		return ErrNotFound
	case ttl > MaxTTL:
		return ErrTTLTooLarge
	case ttl <= 0:
		return ErrInvalidTTL
	case m.find(id) != nil:
		return ErrExists
	}
	l := &modelLease{Record: Record{ID: id, Generation: at, TTL: ttl, Cleared: at}}
	if m.primary {
		l.deadline = now.Add(ttl)
	}
	m.leases = append(m.leases, l)
	return nil
}

func (m *model) expire(e Expiry, term uint64) bool {
	l := m.findRef(e.Ref)
	if l == nil {
		return false
	}
	if e.Term == term && l.Cleared <= e.DecidedAt {
		m.remove(l)
		return true
	}
	if m.primary && m.term == e.Term {
		l.going = false
	}
	return false
}

func (m *model) checkpoint(c Checkpoint, term uint64, now clock.Instant) bool {
	l := m.findRef(c.Ref)
	if l == nil {
		return false
	}
	if m.primary && m.term == c.Term {
		l.inFlight = false
	}
	if c.Term != term || l.Cleared > c.DecidedAt {
		return false
	}
	l.Checkpointed, l.Remaining, l.Applied = true, c.Remaining, now
	return true
}

func (m *model) clear(c Cleared, term uint64, at Position) bool {
	l := m.findRef(c.Ref)
	if l == nil {
		return false
	}
	own := m.primary && m.term == c.Term
	if c.Term != term {
		m.clearDropped(c)
		return false
	}
	l.Cleared, l.Checkpointed, l.Remaining, l.Applied = at, false, 0, clock.Instant{}
	if own {
		l.doubt, l.inFlight, l.queued, l.sent = false, false, false, false
	}
	return true
}

func (m *model) clearDropped(c Cleared) {
	if l := m.findRef(c.Ref); l != nil && m.primary && m.term == c.Term && l.sent {
		l.sent, l.queued = false, true
		m.clears = append(m.clears, c.Ref)
	}
}

func (m *model) promote(extend time.Duration, now clock.Instant, term uint64) {
	m.demote()
	m.primary, m.term, m.extend = true, term, extend
	for _, l := range m.leases {
		left, from, ok := m.checkpointOf(l)
		if !ok {
			from = now
		}
		l.deadline, l.long = from.Add(left).Add(extend), true
	}
}

func (m *model) demote() {
	m.primary, m.term, m.extend, m.clears = false, 0, 0, nil
	for _, l := range m.leases {
		*l = modelLease{Record: l.Record, items: l.items}
	}
}

func (m *model) renew(id ID, now clock.Instant) (time.Duration, error) {
	l := m.find(id)
	switch {
	case !m.primary:
		return 0, ErrNotPrimary
	case l == nil:
		return 0, ErrNotFound
	case l.going:
		return 0, ErrGoing
	}
	l.deadline, l.long = now.Add(l.TTL), false
	_, _, checkpointed := m.checkpointOf(l)
	switch {
	case !m.checkpoints:
		return l.TTL, nil
	case l.queued || l.sent:
		return l.TTL, ErrClearing
	case checkpointed || l.doubt:
		l.queued = true
		m.clears = append(m.clears, l.Ref())
		return l.TTL, ErrClearing
	}
	return l.TTL, nil
}

func (r Record) Ref() Ref { return Ref{r.ID, r.Generation} }

// promised is the deadline but for the extension of Promote.
func (m *model) promised(l *modelLease) clock.Instant {
	if l.long {
		return l.deadline.Add(-m.extend)
	}
	return l.deadline
}

func (m *model) checkpointDue(l *modelLease, now clock.Instant) bool {
	if !m.checkpoints || l.inFlight || l.queued || l.sent {
		return false
	}
	left := l.TTL - SilenceThreshold(l.TTL)
	if l.Checkpointed {
		if l.Remaining < time.Second {
			return false
		}
		left = l.Remaining / 2
	}
	return now.After(m.promised(l).Add(-left))
}

func (m *model) due(now clock.Instant, applied Position) (expiries []Expiry, checkpoints []Checkpoint, cleared []Cleared) {
	if !m.primary {
		return nil, nil, nil
	}
	for _, l := range m.leases {
		switch {
		case l.going:
		case now.After(l.deadline):
			l.going, l.doubt = true, true
			expiries = append(expiries, Expiry{l.Ref(), m.term, applied})
		case m.checkpointDue(l, now):
			l.inFlight, l.doubt = true, true
			left := max(0, now.Until(m.promised(l)))
			checkpoints = append(checkpoints, Checkpoint{l.Ref(), m.term, applied, left})
		}
	}
	for _, ref := range m.clears {
		if l := m.findRef(ref); l != nil && l.queued {
			l.queued, l.sent = false, true
			cleared = append(cleared, Cleared{ref, m.term})
		}
	}
	m.clears = nil
	return expiries, checkpoints, cleared
}

// anythingDue reports whether due would decide anything.
func (m *model) anythingDue(now clock.Instant) bool {
	if len(m.clears) > 0 {
		return true
	}
	return m.primary && slices.ContainsFunc(m.leases, func(l *modelLease) bool {
		return !l.going && (now.After(l.deadline) || m.checkpointDue(l, now))
	})
}

func (m *model) attach(id ID, key string) error {
	l := m.find(id)
	if l == nil {
		return ErrNotFound
	}
	for _, other := range m.leases {
		other.items = slices.DeleteFunc(other.items, func(k string) bool { return k == key })
	}
	l.items = append(l.items, key)
	return nil
}

func (m *model) view(l *modelLease) Lease {
	left, _, checkpointed := m.checkpointOf(l)
	return Lease{
		ID: l.ID, Generation: l.Generation, TTL: l.TTL, Items: len(l.items), Cleared: l.Cleared,
		Checkpointed: checkpointed, Remaining: left, Deadline: l.deadline, Clearing: l.queued || l.sent, Going: l.going,
	}
}

// twin runs the model and two lessors in step: what they are told is the same, so what they say must be.
// The two lessors differ in the order of their maps.
type twin struct {
	model       model
	lessors     [2]*Lessor
	checkpoints [2][]Checkpoint
	cleared     [2][]Cleared
	clocks      clock.Manual
	index       uint64
	ended       []Ref // and other names that mean nothing any more
	expiries    []Expiry
	points      []Checkpoint
	clears      []Cleared
}

func (w *twin) start(checkpoints bool) {
	w.model.checkpoints = checkpoints
	for i := range w.lessors {
		w.lessors[i] = New(Config{})
		if checkpoints {
			w.lessors[i].SetCheckpointer(func(c []Checkpoint, d []Cleared) { w.checkpoints[i], w.cleared[i] = c, d })
		}
	}
}

func (w *twin) next() Position { w.index++; return At(w.index, int(w.index%3)) }

func same[T any](t *rapid.T, what string, want T, got ...T) {
	for _, g := range got {
		if !reflect.DeepEqual(want, g) {
			t.Fatalf("%s: want %+v, got %+v", what, want, g)
		}
	}
}

func (w *twin) due(t *rapid.T) {
	now, applied := w.clocks.Now(), At(w.index, 9)
	expiries, checkpoints, cleared := w.model.due(now, applied)
	var got [2][]Expiry
	w.checkpoints, w.cleared = [2][]Checkpoint{}, [2][]Cleared{}
	for i, l := range w.lessors {
		got[i] = l.Due(now, applied)
	}
	same(t, "expiries of one twin and the other", got[0], got[1])
	same(t, "checkpoints of one twin and the other", w.checkpoints[0], w.checkpoints[1])
	same(t, "clears", cleared, w.cleared[0], w.cleared[1])
	slices.SortFunc(got[0], func(a, b Expiry) int { return cmp.Compare(a.Generation, b.Generation) })
	slices.SortFunc(w.checkpoints[0], func(a, b Checkpoint) int { return cmp.Compare(a.Generation, b.Generation) })
	same(t, "expiries", expiries, got[0])
	same(t, "checkpoints", checkpoints, w.checkpoints[0])
	w.expiries = append(w.expiries, expiries...)
	w.points = append(w.points, checkpoints...)
	w.clears = append(w.clears, cleared...)
}

// TestAgainstModel compares the lessor with the model over random histories, absurd ones included: any
// command may come at any time, in any term, twice, late, or after it was reported as dropped.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{}
		w.start(rapid.Bool().Draw(t, "checkpoints"))
		t.Repeat(map[string]func(*rapid.T){
			"":            w.check,
			"grant":       w.doGrant,
			"renew":       w.doRenew,
			"renew again": w.doRenew,
			"end":         w.doEnd,
			"time":        w.doTime,
			"time again":  w.doTime,
			"due":         w.due,
			"due again":   w.due,
			"command":     w.doCommand,
			"command too": w.doCommand,
			"drop":        w.doDrop,
			"reign":       w.doReign,
			"items":       w.doItems,
			"recover":     w.doRecover,
		})
	})
}

var modelIDs = rapid.SampledFrom([]ID{-1, 1, 2, 3, 4, 5, NoLease})

func (w *twin) doGrant(t *rapid.T) {
	id := modelIDs.Draw(t, "id")
	ttl := time.Duration(rapid.SampledFrom([]int{0, 1, 500, 1000, 2000, 3000, 5000, 10_000, 100_000}).Draw(t, "ttl")) * time.Millisecond
	at, now := w.next(), w.clocks.Now()
	want := w.model.grant(id, ttl, at, now)
	for _, l := range w.lessors {
		_, err := l.Grant(id, ttl, at, now)
		same(t, "grant", want, err)
	}
}

func (w *twin) doRenew(t *rapid.T) {
	id := modelIDs.Draw(t, "id")
	ttl, err := w.model.renew(id, w.clocks.Now())
	for _, l := range w.lessors {
		gotTTL, gotErr := l.Renew(id, w.clocks.Now())
		same(t, "renew", fmt.Sprint(ttl, err), fmt.Sprint(gotTTL, gotErr))
	}
}

func (w *twin) doEnd(t *rapid.T) {
	id := modelIDs.Draw(t, "id")
	w.next()
	l := w.model.find(id)
	if l != nil {
		w.model.remove(l)
	}
	for _, lessor := range w.lessors {
		_, err := lessor.Revoke(id)
		same(t, "revoke", l != nil, err == nil)
	}
}

func (w *twin) doTime(t *rapid.T) {
	millis := rapid.SampledFrom([]int{0, 1, 100, 500, 1000, 3000, 7000, 60_000})
	raw, boot := millis.Draw(t, "raw"), millis.Draw(t, "boot")
	if rapid.IntRange(0, 2).Draw(t, "alike") > 0 {
		boot = raw
	}
	w.clocks.AdvanceBy(time.Duration(raw)*time.Millisecond+1, time.Duration(boot)*time.Millisecond+1)
}

func (w *twin) doCommand(t *rapid.T) {
	term, at, now := w.model.term, w.next(), w.clocks.Now()
	if rapid.IntRange(0, 9).Draw(t, "other term") == 0 {
		term++
	}
	switch kind := rapid.IntRange(0, 2).Draw(t, "kind"); {
	case kind == 0 && len(w.expiries) > 0:
		e := rapid.SampledFrom(w.expiries).Draw(t, "expiry")
		want := w.model.expire(e, term)
		for _, l := range w.lessors {
			_, ok := l.Expire(e, term)
			same(t, "expire", want, ok)
		}
	case kind == 1 && len(w.points) > 0:
		c := rapid.SampledFrom(w.points).Draw(t, "checkpoint")
		same(t, "checkpoint", w.model.checkpoint(c, term, now), w.lessors[0].Checkpoint(c, term, now), w.lessors[1].Checkpoint(c, term, now))
	case kind == 2 && len(w.clears) > 0:
		c := rapid.SampledFrom(w.clears).Draw(t, "clear")
		same(t, "clear", w.model.clear(c, term, at), w.lessors[0].Clear(c, term, at), w.lessors[1].Clear(c, term, at))
	}
}

func (w *twin) doDrop(t *rapid.T) {
	for _, e := range w.expiries {
		if l := w.model.findRef(e.Ref); l != nil && w.model.primary && e.Term == w.model.term {
			l.going = false
		}
	}
	for _, c := range w.points {
		if l := w.model.findRef(c.Ref); l != nil && w.model.primary && c.Term == w.model.term {
			l.inFlight = false
		}
	}
	for _, c := range w.clears {
		w.model.clearDropped(c)
	}
	for _, l := range w.lessors {
		l.ExpiryDropped(w.expiries)
		l.CheckpointsDropped(w.points)
		l.ClearsDropped(w.clears)
	}
}

func (w *twin) doReign(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "demote only") == 0 {
		w.model.demote()
		w.lessors[0].Demote()
		w.lessors[1].Demote()
		return
	}
	now, term := w.clocks.Now(), w.model.term+1
	extend := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 20}).Draw(t, "extend")) * time.Second
	begin := rapid.IntRange(0, 9).Draw(t, "begin") > 0
	at := w.next()
	if begin {
		w.model.reigns = append(w.model.reigns, Reign{at, now})
	}
	w.model.promote(extend, now, term)
	for _, l := range w.lessors {
		if begin {
			l.BeginReign(at, now)
		}
		l.Promote(extend, now, term)
	}
}

func (w *twin) doItems(t *rapid.T) {
	id, key := modelIDs.Draw(t, "id"), rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")
	if rapid.Bool().Draw(t, "attach") {
		want := w.model.attach(id, key)
		for _, l := range w.lessors {
			same(t, "attach", want, l.Attach(id, []Item{{key}}))
		}
		return
	}
	if l := w.model.find(id); l != nil {
		l.items = slices.DeleteFunc(l.items, func(k string) bool { return k == key })
	}
	for _, l := range w.lessors {
		same(t, "detach", w.model.find(id) != nil, l.Detach(id, []Item{{key}}) == nil)
	}
}

// doRecover restarts one of the twins; the other is demoted, which must come to the same.
func (w *twin) doRecover(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
		return
	}
	w.model.demote()
	w.lessors[0].Demote()
	l := w.lessors[1]
	var records []Record
	for _, lease := range l.Leases() {
		r, _ := l.Record(lease.ID)
		records = append(records, r)
	}
	l.Recover(slices.Values(records), l.Reigns())
	for _, lease := range w.model.leases {
		for _, key := range lease.items {
			same(t, "attach", nil, l.Attach(lease.ID, []Item{{key}}))
		}
	}
}

func (w *twin) check(t *rapid.T) {
	now := w.clocks.Now()
	want := make([]Lease, 0, len(w.model.leases))
	for _, l := range w.model.leases {
		want = append(want, w.model.view(l))
	}
	slices.SortFunc(want, func(a, b Lease) int {
		return cmp.Or(cmp.Compare(a.Deadline.Raw, b.Deadline.Raw), cmp.Compare(a.Deadline.Boot, b.Deadline.Boot),
			cmp.Compare(a.Generation, b.Generation))
	})
	overdue, oldest := 0, time.Duration(0)
	for _, l := range w.model.leases {
		if w.model.primary && now.After(l.deadline) {
			overdue++
			oldest = max(oldest, -now.Until(l.deadline))
		}
	}
	for i, l := range w.lessors {
		same(t, "leases", want, l.Leases())
		n, late := l.Overdue(now)
		same(t, "overdue", overdue, n)
		same(t, "oldest overdue", oldest, late)
		for _, lease := range w.model.leases {
			got, _ := l.Record(lease.ID)
			same(t, fmt.Sprintf("record on twin %d", i), lease.Record, got)
			slices.Sort(lease.items)
			var items []Item
			for _, key := range lease.items {
				items = append(items, Item{key})
				same(t, "owner", lease.ID, l.GetLease(Item{key}))
			}
			same(t, "items", items, l.Items(lease.ID))
		}
		if err := checkInvariants(l); err != nil {
			t.Fatal(err)
		}
		wait, ok := l.NextDue(now)
		if wait > 0 && w.model.anythingDue(now.Add(wait-1)) || !ok && w.model.primary && w.model.anythingDue(now.Add(MaxTTL)) {
			t.Fatalf("something is due before %v, %v", wait, ok)
		}
	}
}

// checkInvariants looks at what must hold between any two calls.
func checkInvariants(l *Lessor) error {
	queued, items := 0, 0
	for p := onRaw; p <= going; p++ {
		q := &l.queues[p]
		queued += len(q.slots)
		for i, s := range q.slots {
			le := s.lease
			wake := l.wake(le)
			switch {
			case q.place != p || le.place != p || int(le.index) != i || l.leases[le.id] != le:
				return fmt.Errorf("lease %d is at %d of %d and thinks it is at %d of %d", le.id, i, p, le.index, le.place)
			case i > 0 && s.before(q.slots[(i-1)/arity]):
				return fmt.Errorf("queue %d is out of order at %d", p, i)
			case p == onRaw && s.key > wake.Raw || p == onBoot && s.key > wake.Boot:
				return fmt.Errorf("lease %d would oversleep: key %d, wake %v", le.id, s.key, wake)
			}
		}
	}
	want := 0
	if l.primary {
		want = len(l.leases)
	}
	if queued != want {
		return fmt.Errorf("%d queue entries for %d leases, primary %v", queued, len(l.leases), l.primary)
	}
	for id, le := range l.leases {
		if !l.primary && (le.has(volatile) || le.place != nowhere || le.deadline != clock.Instant{}) {
			return fmt.Errorf("lease %d remembers having been a primary's: %+v", id, *le)
		}
		if le.has(clearQueued) && !slices.Contains(l.clears, le.ref()) {
			return fmt.Errorf("lease %d waits for a clear that nobody will send", id)
		}
		n := 0
		for it := le.first; it != nil; it = it.next {
			if it.owner != le || l.items[it.key] != it || it.next != nil && it.next.prev != it {
				return fmt.Errorf("item %q is not linked properly", it.key)
			}
			n++
		}
		if n != int(le.count) {
			return fmt.Errorf("lease %d has %d items and counts %d", id, n, le.count)
		}
		items += n
	}
	if items != len(l.items) {
		return fmt.Errorf("%d items are attached, the map has %d", items, len(l.items))
	}
	return nil
}
