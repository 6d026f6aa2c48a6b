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

// twin runs the model and two lessors in step. They get the same input, so their output must be the same. The
// two lessors differ in the order of their maps.
type twin struct {
	model       model
	lessors     [2]*Lessor
	checkpoints [2][]Checkpoint
	cleared     [2][]Cleared
	clocks      clock.Manual
	index       uint64
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

// The lessor agrees with the model over random histories, even absurd ones: a command may come at any time,
// in any term, twice, late, or after it was reported as dropped.
func TestLessorAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &twin{}
		w.start(rapid.Bool().Draw(t, "checkpoints"))
		t.Repeat(map[string]func(*rapid.T){
			"":            w.check,
			"grant":       w.doGrant,
			"renew":       w.doRenew,
			"renew again": w.doRenew,
			"end":         w.doEnd,
			"pin":         w.doPin,
			"retain":      w.doRetain,
			"time":        w.doTime,
			"time again":  w.doTime,
			"due":         w.due,
			"due again":   w.due,
			"command":     w.doCommand,
			"command too": w.doCommand,
			"drop":        w.doDrop,
			"leadership":  w.doLeadership,
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
			l.expiring = false
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

func (w *twin) doLeadership(t *rapid.T) {
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
		w.model.leaderships = append(w.model.leaderships, Leadership{at, now})
	}
	w.model.promote(extend, now, term)
	for _, l := range w.lessors {
		if begin {
			l.BeginLeadership(at, now)
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

// doRecover restarts one of the twins and demotes the other. Both must then be in the same state.
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
	l.Recover(slices.Values(records), l.Leaderships())
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
		if w.model.primary && now.After(l.deadline) && !l.Pinned {
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

// checkInvariants checks what must hold between two calls of a lessor.
func checkInvariants(l *Lessor) error {
	queued, items := 0, 0
	for p := onRaw; p <= expiring; p++ {
		q := &l.queues[p]
		queued += len(q.slots)
		for i, s := range q.slots {
			le := s.lease
			next := l.nextDecision(le)
			switch {
			case q.place != p || le.place != p || int(le.index) != i || l.leases[le.id] != le:
				return fmt.Errorf("lease %d is at %d of queue %d, and records %d of queue %d", le.id, i, p, le.index, le.place)
			case i > 0 && s.before(q.slots[(i-1)/arity]):
				return fmt.Errorf("queue %d is out of order at %d", p, i)
			case p == onRaw && s.key > next.Raw || p == onBoot && s.key > next.Boot:
				return fmt.Errorf("the entry of lease %d is late: key %d, next decision %v", le.id, s.key, next)
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
		if !l.primary && (le.has(primaryOnly) || le.place != nowhere || le.deadline != clock.Instant{}) {
			return fmt.Errorf("lease %d has state that only a primary has: %+v", id, *le)
		}
		if le.has(clearQueued) && !slices.Contains(l.clears, le.identity()) {
			return fmt.Errorf("lease %d waits for a clear that is not queued", id)
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
