package lessor

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// A primary hands at most MaxCheckpoints clears to one call of the Checkpointer; the rest follow at once.
func TestClearsOfOneCallAreBounded(t *testing.T) {
	var calls []int
	l := New(Config{MaxCheckpoints: 2})
	l.SetCheckpointer(func(_ []Checkpoint, cleared []Cleared) { calls = append(calls, len(cleared)) })
	for id := ID(1); id <= 3; id++ {
		if _, err := l.Grant(id, 10*time.Second, At(uint64(id), 0), after(0)); err != nil {
			t.Fatal(err)
		}
	}
	l.Promote(0, after(0), 2)
	for id := ID(1); id <= 3; id++ {
		ref := Ref{id, Generation(At(uint64(id), 0))}
		l.Checkpoint(Checkpoint{Ref: ref, Term: 2, DecidedAt: At(3, 0), Remaining: time.Second}, 2, after(0))
		if _, err := l.Renew(id, after(0)); err != ErrClearing {
			t.Fatalf("Renew returned %v", err)
		}
	}
	l.Due(after(0), At(4, 0))
	if wait, ok := l.NextDue(after(0)); !ok || wait != 0 {
		t.Errorf("with a clear left, NextDue returned %v, %v", wait, ok)
	}
	l.Due(after(0), At(4, 0))
	if len(calls) != 2 || calls[0] != 2 || calls[1] != 1 {
		t.Errorf("clears in each call: %v", calls)
	}
}

// A clear whose proposal was reported as dropped may still be applied. Then the primary does not hand it out
// again.
func TestAppliedClearIsNotHandedOutAgain(t *testing.T) {
	var clears []Cleared
	l := granted(t, &clears)
	l.Promote(0, after(0), 2)
	l.Checkpoint(Checkpoint{Ref: one, Term: 2, DecidedAt: At(1, 0), Remaining: time.Second}, 2, after(0))
	if _, err := l.Renew(1, after(0)); err != ErrClearing {
		t.Fatalf("Renew returned %v", err)
	}
	l.Due(after(0), At(2, 0))
	if len(clears) != 1 {
		t.Fatalf("clears: %v", clears)
	}
	l.ClearsDropped(clears)
	if !l.Clear(clears[0], 2, At(3, 0)) {
		t.Fatal("the clear is skipped")
	}
	if l.Due(after(0), At(3, 0)); len(clears) != 1 {
		t.Errorf("an applied clear was handed out again: %v", clears)
	}
}

// A dropped checkpoint is decided again if it is this primary's own and its lease still exists.
func TestDroppedCheckpointIsDecidedAgain(t *testing.T) {
	handed := 0
	l := New(Config{})
	l.SetCheckpointer(func(checkpoints []Checkpoint, _ []Cleared) { handed += len(checkpoints) })
	if _, err := l.Grant(1, 10*time.Second, At(1, 0), after(0)); err != nil {
		t.Fatal(err)
	}
	l.Promote(0, after(0), 2)
	silent := after(7 * time.Second)
	for _, c := range []struct {
		dropped Checkpoint
		handed  int
	}{
		{Checkpoint{Ref: one, Term: 1}, 1},
		{Checkpoint{Ref: Ref{9, 1}, Term: 2}, 0},
		{Checkpoint{Ref: one, Term: 2}, 0},
		{Checkpoint{Ref: one, Term: 2}, 1},
	} {
		handed = 0
		l.Due(silent, At(1, 0))
		if handed != c.handed {
			t.Errorf("before %+v was dropped, Due handed out %d checkpoints, want %d", c.dropped, handed, c.handed)
		}
		l.CheckpointsDropped([]Checkpoint{c.dropped})
	}
}

// A checkpointed lease counts from its checkpoint, so the lessor keeps no earlier leadership for it.
func TestLeadershipsOfCheckpointedLeasesAreForgotten(t *testing.T) {
	l := granted(t, nil)
	l.BeginLeadership(At(2, 0), after(0))
	l.Checkpoint(Checkpoint{Ref: one, Term: 1, DecidedAt: At(2, 0), Remaining: time.Second}, 1, after(0))
	for i := range uint64(minLeaderships) {
		l.BeginLeadership(At(3+i, 0), after(0))
	}
	if kept := l.Leaderships(); len(kept) != 1 || kept[0].Start != At(2+minLeaderships, 0) {
		t.Errorf("kept leaderships: %v", kept)
	}
}

// A lease whose end has come on the raw clock waits for the boot clock. Until the boot clock is past, Due
// does not visit it again.
func TestLeaseWaitingForTheBootClockIsNotVisitedAgain(t *testing.T) {
	l := granted(t, nil)
	l.Promote(0, after(0), 2)
	now := clock.Instant{Raw: int64(11 * time.Second), Boot: int64(9 * time.Second)}
	if due := l.Due(now, At(1, 0)); len(due) != 0 || l.leases[1].place != onBoot {
		t.Fatalf("Due returned %v", due)
	}
	if le := l.firstDue(now); le != nil {
		t.Errorf("lease %d is visited again", le.id)
	}
}
