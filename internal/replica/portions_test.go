package replica

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// claims are so many requests for names that nobody holds, with ids from first on.
func claims(first, n int) []Event {
	var events []Event
	for id := first; id < first+n; id++ {
		events = append(events, Request{uint64(id), Claim{
			Lease: lessor.ID(id), Name: fmt.Sprintf("names/%d", id), TTL: time.Hour, Holder: bytes.Repeat([]byte("h"), 100),
		}})
	}
	return events
}

// granted counts the answers to claims that were granted.
func granted(t *testing.T, effects []Effect) (n int) {
	t.Helper()
	for _, e := range effects {
		if reply, ok := e.(Reply); ok {
			if claimed, ok := reply.Result.(Claimed); !ok || reply.Err != nil || claimed.Lease != lessor.ID(reply.ID) {
				t.Fatalf("request %d: %+v, %v", reply.ID, reply.Result, reply.Err)
			}
			n++
		}
	}
	return n
}

// What is written together is answered a few commands at a time. What those ask next who were answered first is
// written before the last are answered. A crash in between loses nothing.
func TestWrittenTogetherAnsweredBitByBit(t *testing.T) {
	const many = writeEntries * minEntryWeight
	w := newWorld(t).serve()
	defer w.close()
	w.step(claims(1, many)...)
	if len(w.writes) != 1 {
		t.Fatalf("%d writes", len(w.writes))
	}
	first := granted(t, w.report())
	if first != minEntryWeight {
		t.Fatalf("%d of %d are answered first", first, many)
	}
	after := []*world{w.crashed(nil)}
	for seed := range uint64(4) {
		after = append(after, w.crashed(rand.New(rand.NewPCG(seed, 1))))
	}
	second := granted(t, w.step(claims(many+1, 1)...))
	if len(w.writes) != 1 || second != minEntryWeight {
		t.Errorf("%d writes, and %d answers, when more is asked for before all is answered", len(w.writes), second)
	}
	if rest := granted(t, w.settle()); first+second+rest != many+1 {
		t.Errorf("%d answers of %d", first+second+rest, many+1)
	}
	for _, cut := range after {
		cut.open()
		cut.serve()
		if got := cut.replica.Lessor().Len(); got != many {
			t.Errorf("after a crash there are %d leases of %d", got, many)
		}
		cut.close()
	}
}

// What was asked for together is one entry, beside others that were not.
func TestAskedTogetherIsOneEntry(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	const many = 3 * minEntryWeight
	var ops []Op
	for _, e := range claims(1, many) {
		ops = append(ops, e.(Request).Op)
	}
	before := w.replica.Applied()
	w.step(append([]Event{Requests{1, ops}}, claims(many+1, many)...)...)
	first := granted(t, w.report())
	if first != many {
		t.Errorf("%d answers first, of %d that were asked for together", first, many)
	}
	if rest := granted(t, w.settle()); rest != many {
		t.Errorf("%d answers then, of %d", rest, many)
	}
	// They are half of all, and a quarter goes into an entry, so those who asked one by one are two.
	if entries := w.replica.Applied() - before; entries != 3 {
		t.Errorf("%d entries", entries)
	}
}

// However much is written together, it is few entries; and commands that are much work each are by themselves.
func TestEntriesOfAWrite(t *testing.T) {
	for _, test := range []struct {
		weights []int
		entries int
	}{
		{[]int{1}, 1},
		{[]int{maxWriteWeight}, 1},
		{[]int{1, maxExpiries, 1}, 3},
		{slicesOf(minEntryWeight, 1), 1},
		{slicesOf(minEntryWeight+1, 1), 2},
		{slicesOf(writeEntries*minEntryWeight, 1), writeEntries},
		{slicesOf(maxWriteWeight, 1), writeEntries},
		{slicesOf(maxWriteWeight-1, 1), writeEntries},
		{slicesOf(100, maxWriteWeight/100), writeEntries},
	} {
		r := &Replica{proposals: make(map[uint64][]pending)}
		var commands []pending
		for _, weight := range test.weights {
			commands = append(commands, pending{weight: weight, id: uint64(len(commands) + 1)})
		}
		if entries := r.divide(commands); len(entries) != test.entries {
			t.Errorf("%d commands became %d entries, not %d", len(commands), len(entries), test.entries)
		}
		next := uint64(1)
		for sequence := uint64(1); sequence <= r.sequence; sequence++ {
			for _, p := range r.proposals[sequence] {
				if p.id != next {
					t.Fatalf("entry %d has command %d in the place of command %d", sequence, p.id, next)
				}
				next++
			}
		}
		if next != uint64(len(commands)+1) {
			t.Errorf("%d commands of %d are in entries", next-1, len(commands))
		}
	}
}

func slicesOf(n, weight int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = weight
	}
	return all
}
