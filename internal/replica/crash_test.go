package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A move is one thing that happens to the member in a recorded run.
type move struct {
	advance time.Duration
	events  []Event
	atOnce  bool // questions are put to Answer, before Step sees the rest
	report  bool // the disk reports its oldest write
}

// script makes up a run: bursts of requests of every kind, renewals, silences that expire leases, and a
// disk that reports early or late. With names half of them are about names.
func script(seed uint64, moves int, names bool) []move {
	rng := rand.New(rand.NewPCG(seed, 1))
	var all []move
	for id := uint64(1); len(all) < moves; {
		m := move{advance: time.Duration(rng.IntN(120)) * time.Millisecond, report: rng.IntN(3) > 0, atOnce: rng.IntN(2) > 0}
		for range rng.IntN(4) {
			if names && rng.IntN(2) == 0 {
				m.events = append(m.events, randomNameEvent(rng, id))
			} else {
				m.events = append(m.events, randomEvent(rng, id))
			}
			id++
		}
		all = append(all, m)
	}
	return all
}

func randomEvent(rng *rand.Rand, id uint64) Event {
	lease := lessor.ID(rng.IntN(6) + 1)
	key := []byte(fmt.Sprintf("k%d", rng.IntN(8)))
	switch rng.IntN(13) {
	case 0, 1:
		return Request{ID: id, Command: entry.Grant{Lease: lease, TTL: time.Duration(200+rng.IntN(2500)) * time.Millisecond}}
	case 2:
		return Request{ID: id, Command: entry.Revoke{Lease: lease}}
	case 3:
		return Request{ID: id, Command: keyspace.DeleteRequest{Key: key}}
	case 4:
		return Renewal{ID: id, Leases: []lessor.ID{lease, lease%6 + 1}}
	case 5:
		return Read{ID: id}
	case 6:
		return Request{ID: id, Command: keyspace.PutRequest{Key: key, Value: fmt.Appendf(nil, "v%d", id)}}
	case 7, 8, 9:
		return Request{ID: id, Command: randomTxn(rng, id, 2)}
	case 10:
		return Request{ID: id, Command: entry.Compact{Revision: int64(rng.IntN(int(id) + 1)), Physical: rng.IntN(2) == 0}}
	}
	return Request{ID: id, Command: keyspace.PutRequest{Key: key, Value: fmt.Appendf(nil, "v%d", id), Lease: int64(lease), PrevKV: true}}
}

// randomTxn makes up a txn, with others in it, on the keys of randomEvent. Not all of them are accepted.
func randomTxn(rng *rand.Rand, id uint64, depth int) keyspace.TxnRequest {
	key := func() []byte { return fmt.Appendf(nil, "k%d", rng.IntN(8)) }
	txn := keyspace.TxnRequest{Compare: []keyspace.Compare{{
		Result: keyspace.CompareResult(rng.IntN(4)), Target: keyspace.CompareTarget(rng.IntN(5)),
		Key: key(), End: key(), Number: int64(rng.IntN(3)), Value: fmt.Appendf(nil, "v%d", rng.IntN(int(id)+1)),
	}}}
	for _, ops := range []*[]keyspace.TxnOp{&txn.Success, &txn.Failure} {
		for range rng.IntN(3) {
			switch kind := rng.IntN(8); {
			case kind < 4:
				*ops = append(*ops, keyspace.PutRequest{
					Key: key(), Value: fmt.Appendf(nil, "v%d", id), Lease: int64(rng.IntN(3)),
				})
			case kind < 6:
				*ops = append(*ops, keyspace.DeleteRequest{Key: key(), End: key(), PrevKV: true})
			case kind < 7 || depth == 0:
				*ops = append(*ops, keyspace.RangeRequest{Key: key(), End: []byte{0}, Revision: int64(rng.IntN(3))})
			default:
				*ops = append(*ops, randomTxn(rng, id, depth-1))
			}
		}
	}
	return txn
}

// A recording is what a run looked like from outside and inside.
type recording struct {
	effects []string
	dumps   map[uint64]string // by applied index
	counts  Counts
}

// acknowledged is what the outside world has been promised up to some effect.
type acknowledged struct {
	index     uint64                       // every change up to here
	deadlines map[lessor.Ref]clock.Instant // no lease that is still there may end before
}

// play runs a script. cut is called before each effect is performed, and at the end, with what has been
// promised until then; play stops at its first error.
func play(w *world, moves []move, cut func(acknowledged) error) (recording, error) {
	rec := recording{dumps: make(map[uint64]string)}
	ack := acknowledged{deadlines: make(map[lessor.Ref]clock.Instant)}
	step := func(atOnce bool, events ...Event) error {
		var effects []Effect
		if atOnce {
			effects, events = w.answer(events)
		}
		effects = slices.AppendSeq(effects, Each(w.replica.Step(w.clock.Now(), events...)))
		rec.dumps[w.replica.Applied()] = w.dump()
		for _, e := range effects {
			if err := cut(ack); err != nil {
				return err
			}
			rec.effects = append(rec.effects, render(e))
			ack.note(e, w)
			w.perform(e)
		}
		return cut(ack)
	}
	for _, m := range moves {
		w.clock.Advance(m.advance)
		if err := step(m.atOnce, m.events...); err != nil {
			return rec, err
		}
		for len(w.writes) > 0 && m.report {
			sequence := w.writes[0].Sequence
			w.writes = w.writes[1:]
			if err := step(false, Persisted{Sequence: sequence}); err != nil {
				return rec, err
			}
		}
	}
	for len(w.writes)+len(w.replica.deferred) > 0 { // so that whatever a crash may keep has been seen
		if len(w.replica.deferred) > 0 {
			w.step(Tick{})
		} else {
			w.report()
		}
		rec.dumps[w.replica.Applied()] = w.dump()
	}
	rec.counts = w.replica.Counts()
	return rec, nil
}

// note records what an effect reveals to the outside world.
func (a *acknowledged) note(e Effect, w *world) {
	switch e := e.(type) {
	case Reply:
		if e.Err != nil {
			return
		}
		a.index = w.replica.Applied()
		if granted, ok := e.Result.(Granted); ok {
			a.promise(granted.ID, granted.TTL, w)
		}
		if claimed, ok := e.Result.(ownership.Claimed); ok && claimed.Lease != lessor.NoLease && !a.known(claimed.Lease, w) {
			a.promise(claimed.Lease, claimed.TTL, w)
		}
	case Renewed:
		for _, lease := range e.Leases {
			if lease.Err == nil {
				a.promise(lease.ID, lease.TTL, w)
			}
		}
	}
}

// known says whether something was promised to a lease already. A claim that is made again promises nothing
// new: its client counts from when it sent the first.
func (a *acknowledged) known(id lessor.ID, w *world) bool {
	lease, ok := w.replica.Lessor().Lookup(id)
	_, promised := a.deadlines[lease.Ref()]
	return ok && promised
}

// promise notes a deadline of one grant of a lease. It notes nothing if that grant has ended within the same step and the
// id was granted again, which the random TTLs show.
func (a *acknowledged) promise(id lessor.ID, ttl time.Duration, w *world) {
	if lease, ok := w.replica.Lessor().Lookup(id); ok && lease.TTL == ttl {
		a.deadlines[lease.Ref()] = w.clock.Now().Add(ttl)
	}
}

// check restarts from a crashed disk, and compares the state with what was promised. It also compares it with the
// state of the uninterrupted run at the same index of the log.
func check(w *world, ack acknowledged, reference recording) error {
	if err := w.tryOpen(); err != nil {
		return fmt.Errorf("after the crash the replica does not open: %w", err)
	}
	defer w.close()
	last := w.replica.Last()
	if last < ack.index {
		return fmt.Errorf("changes up to log index %d were acknowledged, but after the crash the log ends at %d", ack.index, last)
	}
	w.serve()
	want, ok := reference.dumps[last]
	if last > 0 && !ok {
		return fmt.Errorf("the uninterrupted run never stood at index %d", last)
	}
	got := w.dump()
	if last > 0 && got != want {
		return fmt.Errorf("after a crash at index %d:\n%s\nbut without it:\n%s", last, got, want)
	}
	w.tidy()
	if again := w.dump(); again != got {
		return fmt.Errorf("after a crash at index %d, and after tidying up:\n%s\nbefore:\n%s", last, again, got)
	}
	now := w.clock.Now()
	for _, lease := range w.replica.Lessor().Leases() {
		deadline, promised := ack.deadlines[lease.Ref()]
		if left := now.Remaining(lease.Deadline); promised && left < now.Remaining(deadline) {
			return fmt.Errorf("lease %x was promised %v more, and has %v after the crash", int64(lease.ID), now.Remaining(deadline), left)
		}
	}
	return nil
}

// crashEverywhere plays a script once to know it, and a second time to cut it at every effect.
func crashEverywhere(t *testing.T, seed uint64, opts *pebble.WriteOptions, torn bool) (recording, error) {
	moves := script(seed, 60, seed%2 == 0)
	retain := func(w *world) { w.retention = 1500 * time.Millisecond }
	first := newWorldOf(t, retain)
	first.logKeep = 8
	defer first.close()
	reference, err := play(first, moves, func(acknowledged) error { return nil })
	if err != nil {
		return reference, err
	}
	second := newWorldOf(t, retain)
	second.logKeep, second.sync = 8, opts
	defer second.close()
	var rng *rand.Rand
	if torn {
		rng = rand.New(rand.NewPCG(seed, 2))
	}
	again, err := play(second, moves, func(ack acknowledged) error { return check(second.crashed(rng), ack, reference) })
	if err != nil {
		return reference, err
	}
	if a, b := strings.Join(reference.effects, "\n"), strings.Join(again.effects, "\n"); a != b {
		return reference, fmt.Errorf("the same inputs gave other effects:\n%s\nand:\n%s", a, b)
	}
	return reference, nil
}

// Cut a run at every single effect and start again from what was synced: everything acknowledged is there,
// nothing is there that was not asked for, and no lease ends early. The second run of the same inputs must
// give the same effects, byte for byte.
func TestCrashAtEveryEffect(t *testing.T) {
	var total Counts
	for seed := uint64(1); seed <= 6; seed++ {
		for _, torn := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed=%d/torn=%v", seed, torn), func(t *testing.T) {
				rec, err := crashEverywhere(t, seed, pebble.Sync, torn)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d effects, %+v", len(rec.effects), rec.counts)
				total.Expired += rec.counts.Expired
				total.Granted += rec.counts.Granted
				total.Renewed += rec.counts.Renewed
				total.Revoked += rec.counts.Revoked
			})
		}
	}
	if total.Expired == 0 || total.Granted == 0 || total.Renewed == 0 || total.Revoked == 0 {
		t.Errorf("the scripts do not reach everything: %+v", total)
	}
}

// The test above can fail: without the sync it does.
func TestCrashAtEveryEffectFindsAMissingSync(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		if _, err := crashEverywhere(t, seed, pebble.NoSync, false); err == nil {
			t.Errorf("seed %d: log entries were not synced, and no crash showed it", seed)
		} else if !strings.Contains(err.Error(), "were acknowledged, but after the crash") {
			t.Errorf("seed %d: the missing sync was found by something else: %v", seed, err)
		}
	}
}
