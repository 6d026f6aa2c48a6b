package claimed_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

func ExampleNew() {
	ctx := context.Background()
	store := claimtest.NewMemory().Open() // or a store of your own
	b, err := claimed.New(store)
	if err != nil {
		log.Fatal(err)
	}
	k, err := leasekeeper.New(b, leasekeeper.WithHolder("worker-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close() // closes the store too
	err = k.Run(ctx, "jobs/nightly", func(ctx context.Context, l *leasekeeper.Lease) error {
		fmt.Println("the only one, with token", l.Token())
		return nil
	})
	fmt.Println(err)
	// Output:
	// the only one, with token 1
	// <nil>
}

func ExampleWithPoll() {
	ctx := context.Background()
	database := claimtest.NewMemory()
	// A store without hints, which waiters ask ten times a second.
	open := func(holder string) *leasekeeper.Keeper {
		b, err := claimed.New(claimtest.Plain(database.Open()), claimed.WithPoll(100*time.Millisecond))
		if err != nil {
			log.Fatal(err)
		}
		k, err := leasekeeper.New(b, leasekeeper.WithHolder(holder))
		if err != nil {
			log.Fatal(err)
		}
		return k
	}
	a, b := open("a"), open("b")
	defer a.Close()
	defer b.Close()
	first, err := a.Acquire(ctx, "jobs/nightly")
	if err != nil {
		log.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = first.Release(ctx) })
	next, err := b.Acquire(ctx, "jobs/nightly")
	fmt.Println(next.Holder().ID, next.Token() > first.Token(), err)
	// Output: b true <nil>
}

func ExampleWithOptions() {
	ctx := context.Background()
	// Machines whose clocks are known to be bad.
	b, err := claimed.New(claimtest.NewMemory().Open(), claimed.WithOptions(claim.Options{Drift: 50_000}))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)
	fmt.Println(b.Limits().MinTTL, err)
	// Output: 10ms <nil>
}

func ExampleLeaseOf() {
	ctx := context.Background()
	b, err := claimed.New(claimtest.NewMemory().Open())
	if err != nil {
		log.Fatal(err)
	}
	k, err := leasekeeper.New(b)
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	l, err := k.TryAcquire(ctx, "jobs/nightly")
	if err != nil {
		log.Fatal(err)
	}
	own, err := claimed.LeaseOf(l.Raw())
	if err != nil {
		log.Fatal(err)
	}
	// The client can do what keepers cannot: prolong this lease once for an hour, whatever becomes of the
	// renewals.
	fmt.Println(own.Token() == l.Token(), b.Client().Extend(ctx, own, time.Hour))
	// Output: true <nil>
}
