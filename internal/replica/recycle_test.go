package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
)

// A member at rest keeps nothing of its last batch.
func TestLastBatchIsNotKeptInMemory(t *testing.T) {
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
