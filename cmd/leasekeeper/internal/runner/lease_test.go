package runner

import (
	"context"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// The deadline for the guard is not later than the lease's, and moves only when the lease's moves.
func TestDeadlineForTheGuardFollowsTheLease(t *testing.T) {
	const ttl = 3 * time.Second
	ctx := context.Background()
	k, err := leasekeeper.Open(ctx, "memory:", leasekeeper.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	l, err := k.Acquire(ctx, "lock")
	if err != nil {
		t.Fatal(err)
	}
	h := &heldName{lease: l}
	moved := 0
	last := h.Deadline()
	for begun := time.Now(); time.Since(begun) < ttl; {
		end, left := h.Deadline(), l.Remaining()
		if latest := clock.Now().Add(left + sameDeadline); left > 0 && latest.Before(end) {
			t.Fatalf("the guard relies on %v more than the lease lasts", latest.Remaining(end))
		}
		if end != last {
			moved, last = moved+1, end
		}
		time.Sleep(time.Millisecond)
	}
	if moved < 2 || moved > 8 {
		t.Errorf("the deadline moved %d times in one length of the TTL", moved)
	}
	if err := l.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if end := h.Deadline(); end != last {
		t.Errorf("after its end the lease has the deadline %v instead of %v", end, last)
	}
}

// A password in the URL of the store reaches the command only with --with-password.
func TestStoreForCommandHasNoPassword(t *testing.T) {
	const password = "a-word"
	without := runFlags{Names: settings.Names{Store: "etcds://me:" + password + "@h/"}}
	with := without
	with.withPassword = true
	if got := without.storeForCommand(); got != "etcds://me@h/" {
		t.Errorf("the command receives %q", got)
	}
	if got := with.storeForCommand(); got != with.Store {
		t.Errorf("the command receives %q", got)
	}
}
