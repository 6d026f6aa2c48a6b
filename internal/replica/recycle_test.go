package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
)

// What waited in a queue that took several entries is not kept by the memory of one of them.
func TestQueuesThatAreUsedAgainKeepNothing(t *testing.T) {
	r := &Replica{}
	for i := range 64 {
		r.queue = append(r.queue, newPending(uint64(i+1), put1("k", "v")))
	}
	all := r.queue
	var proposals [][]pending
	for len(r.queue) > 0 {
		proposals = append(proposals, r.dequeue(min(8, len(r.queue))))
	}
	next := uint64(0)
	for _, taken := range proposals {
		for _, p := range taken {
			if next++; p.id != next {
				t.Fatalf("request %d is taken where %d was to be", p.id, next)
			}
		}
	}
	for _, taken := range proposals {
		r.recycle(taken)
	}
	if len(r.spareQueues) != maxSpareQueues {
		t.Errorf("%d queues are kept, not %d", len(r.spareQueues), maxSpareQueues)
	}
	for _, spare := range r.spareQueues {
		if len(spare) > 0 || slices.ContainsFunc(spare[:cap(spare)], func(p pending) bool { return p.id != 0 }) {
			t.Errorf("a queue to be used again holds %v", spare[:cap(spare)])
		}
	}
	for i, p := range all[:len(all)-8] { // the last entry may have gone on as it is, and was the last to be given up
		if p.id != 0 {
			t.Fatalf("request %d of %d is kept by those that share its memory", i+1, len(all))
		}
	}
}

// A member that rests keeps nothing of what it did last.
func TestTheLastBatchIsNotKept(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, ownership.Claim{Lease: 7, TTL: time.Second, Name: "n", Holder: []byte("h")})
	a := &w.replica.batch
	if len(a.replies) == 0 || len(a.env.Effects.Changes) == 0 || len(a.payload.Commands) == 0 {
		t.Fatal("there is nothing of the last batch already when the driver gets it")
	}
	w.step(Tick{})
	replies, names, commands := a.replies[:cap(a.replies)], a.env.Effects.Changes[:cap(a.env.Effects.Changes)], a.payload.Commands[:cap(a.payload.Commands)]
	if len(replies) == 0 || len(names) == 0 || len(commands) == 0 {
		t.Error("memory that could be used again is not kept")
	}
	if a.writer != nil || slices.ContainsFunc(replies, func(r Reply) bool { return r.ID != 0 }) ||
		slices.ContainsFunc(names, func(n ownership.Change) bool { return n.Kind != 0 }) ||
		slices.ContainsFunc(commands, func(c []byte) bool { return c != nil }) {
		t.Errorf("kept: the writer: %v; %v, %v, %x", a.writer != nil, replies, names, commands)
	}
	if much := emptied(make([]Reply, 0, 1<<17)); much != nil {
		t.Error("much memory is kept")
	}
}
