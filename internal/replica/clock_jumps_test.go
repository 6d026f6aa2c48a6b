package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// promises are how long holders may rely on their leases, and when the member must have ended these.
type promises struct {
	w    *world
	kept map[lessor.Ref]promise
}

type promise struct{ lasts, over clock.Instant }

// note takes down what effects promise at the instant at which the replica made them.
func (p *promises) note(effects []Effect) {
	told := func(id lessor.ID, ttl time.Duration) {
		if lease, ok := p.w.replica.Lessor().Lookup(id); ok && lease.TTL == ttl {
			until := p.w.clock.Now().Add(ttl)
			p.kept[lease.Ref()] = promise{until, until}
		}
	}
	for _, e := range effects {
		switch e := e.(type) {
		case Reply:
			if granted, ok := e.Result.(Granted); ok && e.Err == nil {
				told(granted.ID, granted.TTL)
			}
		case Renewed:
			for _, lease := range e.Leases {
				if lease.Err == nil {
					told(lease.ID, lease.TTL)
				}
			}
		}
	}
}

// restarted extends what the member may hold leases for: it does not know when it last heard of them.
func (p *promises) restarted(w *world) {
	p.w = w
	for _, lease := range w.replica.Lessor().Leases() {
		if made, ok := p.kept[lease.Ref()]; ok {
			over := w.clock.Now().Add(lease.TTL)
			p.kept[lease.Ref()] = promise{made.lasts, clock.Instant{
				Raw: max(over.Raw, made.over.Raw), Boot: max(over.Boot, made.over.Boot),
			}}
		}
	}
}

// check reports a lease that ended early, and forgets those that ended in time.
func (p *promises) check() error {
	now := p.w.clock.Now()
	for ref, made := range p.kept {
		lease, ok := p.w.replica.Lessor().Lookup(ref.ID)
		if ok && lease.Ref() == ref {
			continue
		}
		if !now.After(made.lasts) {
			return fmt.Errorf("at %v lease %x is gone, which was to last until %v", now, int64(ref.ID), made.lasts)
		}
		delete(p.kept, ref)
	}
	return nil
}

// overstayed reports a lease that is still there although both clocks have long passed its end.
func (p *promises) overstayed() error {
	now := p.w.clock.Now()
	for _, lease := range p.w.replica.Lessor().Leases() {
		if made, ok := p.kept[lease.Ref()]; ok && now.After(made.over.Add(5*TickInterval)) {
			return fmt.Errorf("at %v lease %x is still there, which was over at %v", now, int64(lease.ID), made.over)
		}
	}
	return nil
}

// clockStep moves the two clocks as no lease holder would like it.
func clockStep(rng *rand.Rand, c *clock.Manual) {
	const day = 24 * time.Hour
	short := func() time.Duration { return time.Duration(rng.IntN(400)) * time.Millisecond }
	switch rng.IntN(12) {
	case 0:
		c.Suspend(day)
	case 1:
		c.AdvanceBy(day, 0) // no machine does this; nothing may break all the same
	case 2:
		c.AdvanceBy(day+short(), day)
	case 3:
		c.Suspend(short() * 10)
	case 4:
		c.AdvanceBy(short()*10, short()*10)
	case 5: // slewed
		d := short() * 10
		c.AdvanceBy(d, d+d/20)
	default:
		c.Advance(short())
	}
}

// However the two clocks part, by days and at any moment, with or without a restart in between: no lease ends before
// both have passed what its holder received. Each has ended when they have.
func TestLeasesEndInTimeThoughClocksJump(t *testing.T) {
	var total Counts
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			counts, err := jump(t, rand.New(rand.NewPCG(seed, 3)))
			if err != nil {
				t.Fatal(err)
			}
			total.Granted, total.Renewed, total.Expired = total.Granted+counts.Granted, total.Renewed+counts.Renewed, total.Expired+counts.Expired
		})
	}
	if total.Granted < 100 || total.Renewed < 100 || total.Expired < 100 {
		t.Errorf("the clocks did not leave much to see: %+v", total)
	}
}

func jump(t *testing.T, rng *rand.Rand) (counts Counts, err error) {
	w := newWorld(t)
	defer func() { w.close() }()
	w.serve()
	p := &promises{w: w, kept: make(map[lessor.Ref]promise)}
	step := func(events ...Event) error {
		if rng.IntN(2) == 0 {
			var effects []Effect
			effects, events = w.answer(events)
			p.note(effects)
		}
		if len(events) > 0 || rng.IntN(2) == 0 { // Step need not be called after every answer
			p.note(w.step(events...))
		}
		p.note(w.settle())
		return p.check()
	}
	for id := uint64(1); id < 400; id++ {
		clockStep(rng, w.clock)
		lease := lessor.ID(rng.IntN(20) + 1)
		var event Event = Renewal{ID: id, Leases: []lessor.ID{lease, lease%20 + 1}}
		switch rng.IntN(5) {
		case 0, 1: // lengths that no other granting has, or a promise would be taken for that of another
			event = Request{ID: id, Command: entry.Grant{Lease: lease, TTL: time.Duration(rng.Int64N(int64(20 * time.Second)))}}
		case 2:
			event = Tick{}
		}
		if err := step(event); err != nil {
			return counts, err
		}
		if rng.IntN(40) == 0 {
			next := w.crashed(nil)
			counts = add(counts, w.replica.Counts())
			w.close()
			w = next
			w.start()
			w.serve()
			p.restarted(w)
			if err := p.check(); err != nil {
				return counts, fmt.Errorf("after a restart: %w", err)
			}
		}
		if rng.IntN(4) > 0 {
			continue
		}
		for range 8 { // the driver is no longer held up
			w.clock.Advance(TickInterval)
			if err := step(Tick{}); err != nil {
				return counts, err
			}
		}
		if err := p.overstayed(); err != nil {
			return counts, err
		}
	}
	return add(counts, w.replica.Counts()), nil
}

func add(a, b Counts) Counts {
	a.Granted, a.Renewed, a.Expired = a.Granted+b.Granted, a.Renewed+b.Renewed, a.Expired+b.Expired
	return a
}

// A disk that stands still for minutes delays every change, and no renewal. Each renewal is answered in the very step
// in which it came, and the renewed leases stay. Leases that end meanwhile delay no other.
func TestSlowDiskDelaysNoRenewal(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.serve()
	const leases = 50
	var ids []lessor.ID
	for id := lessor.ID(1); id <= leases; id++ {
		w.do(uint64(id), entry.Grant{Lease: id, TTL: 2 * time.Second})
		ids = append(ids, id)
	}
	w.do(100, entry.Grant{Lease: leases + 1, TTL: time.Second}) // it is not renewed in time
	request := uint64(1000)
	for range 600 {
		w.clock.Advance(500 * time.Millisecond)
		request += 2
		effects := w.step(Request{ID: request, Command: putKey("k")}, Renewal{ID: request + 1, Leases: append(slices.Clone(ids), leases+1)})
		renewed := make(map[lessor.ID]bool)
		for _, e := range effects {
			if r, ok := e.(Renewed); ok && r.ID == request+1 {
				for _, lease := range r.Leases {
					if lease.Err == nil {
						renewed[lease.ID] = true
					}
				}
			}
		}
		for _, id := range ids {
			if !renewed[id] {
				t.Fatalf("after %v without the disk lease %d was not renewed at once: %v", w.clock.Now(), id, effects)
			}
		}
		for tick := 0; request == 1200 && tick < 12; tick++ {
			w.clock.Advance(TickInterval) // the last lease is late, and its end waits for the disk
			w.step(Tick{})
		}
	}
	if len(w.writes) == 0 {
		t.Fatal("no write waits for the disk")
	}
	w.settle()
	w.advance(time.Second)
	for _, id := range ids {
		if _, ok := w.replica.Lessor().Lookup(id); !ok {
			t.Errorf("lease %d was renewed all the time and has ended", id)
		}
	}
	late := w.do(2, entry.Revoke{Lease: leases + 1})
	if !errors.Is(late.Err, lessor.ErrNotFound) {
		t.Errorf("the lease that was not renewed in time: %v", late.Err)
	}
}

// However many leases end together, a put that comes meanwhile waits for a few of them only.
func TestPutsDoNotWaitForAllExpiries(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.serve()
	const leases = 10 * intake.MaxExpiries
	for id := lessor.ID(1); id <= leases; id++ {
		w.do(uint64(2*id), entry.Grant{Lease: id, TTL: time.Minute})
		w.do(uint64(2*id+1), keyspace.PutRequest{Key: fmt.Appendf(nil, "k%d", id), Lease: int64(id)})
	}
	before := w.replica.Store().Revision()
	w.clock.Advance(time.Minute)
	w.step(Tick{}) // which finds that it was paused, and holds back
	w.clock.Advance(2 * TickInterval)
	for range 20 { // while the disk is busy with the first of them
		w.step(Tick{})
	}
	put := w.do(1, putKey("other"))
	if put.Err != nil {
		t.Fatal(put.Err)
	}
	if ended := put.Header.Revision - before - 1; ended > 3*intake.MaxExpiries {
		t.Errorf("the put waited for the ends of %d leases", ended)
	}
	w.settle()
	for range leases {
		if w.replica.Lessor().Len() == 0 {
			return
		}
		w.advance(max(1, w.wait()))
	}
	t.Errorf("%d leases are left", w.replica.Lessor().Len())
}
