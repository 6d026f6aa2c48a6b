package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// manyClaimers is how many names are claimed at the same time.
	manyClaimers = 64
	// manyTTL is on clocks that stand still unless they are moved, so that no machine is too slow for it.
	manyTTL = time.Hour
	// manyLimit bounds how long anything may take.
	manyLimit = 2 * time.Minute
)

// Many is a store on which one keeper has many leases, with functions that observe it from outside.
type Many struct {
	Store claim.Store // closed with the keeper
	// Writes returns how many writes about leases were sent: statements, or commits. Writes that are sent
	// together count once.
	Writes func() int64
	// Together is how many leases one write renews at most; 0 means any number.
	Together int
	// Held counts the held names whose holder last wrote when its own clock showed written, or more.
	Held func(t testing.TB, written clock.Instant) int
}

// KeepsMany makes a keeper acquire many names, keep them for longer than their TTL, and release them. Each
// renewal of all is one write, or as few as the store allows, and releases share theirs.
func KeepsMany(t testing.TB, m Many) {
	t.Helper()
	hand := memory.NewClock()
	backend, err := claimed.New(m.Store, claimed.WithOptions(claim.Options{Clock: hand}))
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(backend, leasekeeper.WithHolder("me"), leasekeeper.WithTTL(manyTTL))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), manyLimit)
	defer cancel()
	began := hand.Now()
	leases := acquireMany(ctx, t, k, hand)
	if n := m.Held(t, began); n != len(leases) {
		t.Fatalf("%d names are held of %d", n, len(leases))
	}
	m.renew(t, leases, hand)
	before := m.Writes()
	if err := k.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if n := m.Writes() - before; n >= int64(len(leases)) {
		t.Errorf("%d names were given back by %d writes", len(leases), n)
	}
	if n := m.Held(t, clock.Instant{}); n != 0 {
		t.Errorf("%d names of %d were not given back", n, len(leases))
	}
}

// acquireMany acquires all names, while time passes.
func acquireMany(ctx context.Context, t testing.TB, k *leasekeeper.Keeper, hand *memory.Clock) []*leasekeeper.Lease {
	t.Helper()
	leases := make([]*leasekeeper.Lease, manyLeases)
	var next atomic.Int64
	var all sync.WaitGroup
	for range manyClaimers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(leases)); i = next.Add(1) - 1 {
				l, err := k.Acquire(ctx, fmt.Sprint("x/", i))
				if err != nil {
					t.Error(err)
					return
				}
				leases[i] = l
				hand.Advance(manyTTL / 16 / time.Duration(len(leases))) // the last is acquired before the first has to be renewed
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return leases
}

// renew lets the keeper renew the leases until all would have expired.
func (m *Many) renew(t testing.TB, leases []*leasekeeper.Lease, hand *memory.Clock) {
	t.Helper()
	for round := range 3 {
		before := m.Writes()
		hand.Advance(manyTTL * 2 / 5)
		limit := time.Now().Add(manyLimit)
		for i, l := range leases { // no time passes until the keeper has taken in the result
			for l.Remaining() < manyTTL*5/6 {
				if err := l.Check(); err != nil || time.Now().After(limit) {
					t.Fatalf("round %d: lease %d was not renewed, %v is left: %v", round, i, l.Remaining(), err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
		want := int64(1)
		if m.Together > 0 {
			want = int64((len(leases) + m.Together - 1) / m.Together)
		}
		if n := m.Writes() - before; n != want {
			t.Errorf("round %d: %d leases were renewed by %d writes", round, len(leases), n)
		}
		if n := m.Held(t, hand.Now()); n != len(leases) {
			t.Errorf("round %d: %d leases were renewed of %d", round, n, len(leases))
		}
	}
}
