package ownership

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// However claims overtake each other, the tokens of successive owners of a name grow, and each waiter's token grows in the
// order of the queue. Waiters of etcd's own recipe keep their keys.
func TestTokensGrowWhoeverOvertakes(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld()
		w.t = t
		last, owner := int64(0), lessor.NoLease
		foreign := make(map[lessor.ID]int64)
		for step := range 60 {
			id := lessor.ID(step + 1)
			waiters, _, _ := w.registry.Waiters("n")
			some := lessor.ID(1 + rng.IntN(step+1))
			if len(waiters) > 0 {
				some = waiters[rng.IntN(len(waiters))]
			}
			switch rng.IntN(8) {
			case 0, 1, 2, 3:
				w.play(fmt.Sprintf("claim n %d 1m wait priority=%d", id, rng.IntN(5)-2))
			case 4:
				w.play(fmt.Sprintf("grant %d 1m", id))
				w.play(fmt.Sprintf("put n/%x=%d", id, id))
				foreign[id] = w.revision
			case 5:
				w.play(fmt.Sprintf("prefer n %d", some))
			default:
				if _, ours := w.registry.ClaimOf(some); ours {
					w.play(fmt.Sprintf("release n %d", some))
				} else if _, alive := w.leases.Lookup(some); alive {
					w.play(fmt.Sprintf("end %d", some))
				}
			}
			if rng.IntN(10) == 0 {
				w.restart()
			}
			checkTokens(t, w, foreign)
			if s := w.registry.State(w.newView(), "n"); s.Held && s.Lease != owner {
				if s.Token <= last {
					t.Fatalf("seed %d: the token fell from %d to %d", seed, last, s.Token)
				}
				last, owner = s.Token, s.Lease
			}
		}
	}
}

// checkTokens checks that the tokens of the queue are those of the keys, and that each is higher than the one before.
func checkTokens(t *testing.T, w *world, foreign map[lessor.ID]int64) {
	t.Helper()
	waiters, barred, _ := w.registry.Waiters("n")
	if len(barred) > 0 {
		t.Fatalf("barred are %v", barred)
	}
	before := int64(0)
	for i, id := range waiters {
		place, err := w.registry.Place("n", id)
		w.must(err)
		key := w.keys[string(Key("n", id))]
		if place.Token <= before || place.Before != i || key.created != place.Token || key.lease != id || foreign[id] != 0 && foreign[id] != place.Token {
			t.Fatalf("lease %d has the place %+v behind token %d, its key is %+v, and it was created at %d", id, place, before, key, foreign[id])
		}
		before = place.Token
	}
}

// One command queues a bounded number of claims again. A claim with a priority then stays behind the others, and a
// preference is refused.
func TestRequeuedClaimsAreBounded(t *testing.T) {
	w, _ := play(t, "claim n 1 1m")
	for i := range maxRequeued + 1 {
		w.play(fmt.Sprintf("claim n %d 1m wait", i+2))
	}
	if n := len(w.registry.Overtaken(Claim{Name: "n", Priority: 1})); n != maxRequeued {
		t.Errorf("%d claims are overtaken", n)
	}
	last := lessor.ID(maxRequeued + 2)
	if leases, err := w.registry.Prefer(&w.env, Prefer{Name: "n", Lease: last}); err != nil || len(leases) != maxRequeued {
		t.Errorf("%d claims are queued again: %v", len(leases), err)
	}
	w.play(fmt.Sprintf("claim n %d 1m wait", last+1))
	if leases, err := w.registry.Prefer(&w.env, Prefer{Name: "n", Lease: last + 1}); !errors.Is(err, ErrLongQueue) {
		t.Errorf("%d claims are queued again: %v", len(leases), err)
	}
}

// Only a waiting claim of that name is preferred. The first in the queue stays where it is, and cannot be overtaken later.
func TestPreferenceIsOfAWaitingClaim(t *testing.T) {
	w, _ := play(t, "claim n 1 1m", "claim n 2 1m wait", "claim m 3 1m", "claim m 4 1m wait", "grant 5 1m", "put n/5=5", "claim n 6 1m wait")
	for _, c := range []struct {
		op   Prefer
		want error
	}{
		{Prefer{"n", 1}, ErrNotWaiting}, {Prefer{"n", 4}, ErrNotWaiting}, {Prefer{"n", 5}, ErrNotWaiting}, {Prefer{"n", 9}, ErrNotWaiting},
		{Prefer{"n", 6}, ErrNotOvertaken}, {Prefer{"n", 2}, nil},
	} {
		if leases, err := w.registry.Prefer(&w.env, c.op); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || len(leases) > 0 {
			t.Errorf("%+v: %v, %v", c.op, leases, err)
		}
	}
	w.play("end 5")
	if got := w.registry.Overtaken(Claim{Name: "n", TTL: time.Minute, Priority: 1 << 15}); !slices.Equal(got, []lessor.ID{6}) {
		t.Errorf("overtaken are %v", got)
	}
	if r, ok := w.registry.ClaimRecord(2); !ok || r != (ClaimRecord{Name: "n", Priority: preferred}) {
		t.Errorf("the record is %+v, %v", r, ok)
	}
	if r, ok := w.registry.ClaimRecord(5); ok {
		t.Errorf("a lease without a claim has the record %+v", r)
	}
}

// The lease of a claim that a client of etcd's API puts into another queue as well is in both.
func TestClaimedLeaseWaitsForAnotherNameToo(t *testing.T) {
	w, _ := play(t, "claim n 7 1m", "put m/7=7")
	if name, ok := w.registry.ClaimOf(7); !ok || name != "n" {
		t.Errorf("lease 7 was claimed for %q", name)
	}
	for _, name := range []string{"n", "m"} {
		place, err := w.registry.Place(name, 7)
		if key := w.keys[name+"/7"]; err != nil || place.Token != key.created {
			t.Errorf("%s: %+v, %v; the key is %+v", name, place, err, key)
		}
	}
}
