package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// work is the program under test: it must stop when its lease is lost.
func work(ctx context.Context, l *leasekeeper.Lease) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func ExampleNew() {
	ctx := context.Background()
	store := memory.New()
	k, err := leasekeeper.New(store.Backend())
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	fmt.Println(k.Run(ctx, "jobs/nightly", func(context.Context, *leasekeeper.Lease) error { return nil }))
	// Output: <nil>
}

func ExampleStore_Inject() {
	ctx := context.Background()
	store := memory.New()
	k, err := leasekeeper.New(store.Backend(), leasekeeper.WithTTL(50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	// No renewal gets an answer from now on.
	heal := store.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})
	defer heal()
	err = k.Run(ctx, "jobs/nightly", work)
	fmt.Println(errors.Is(err, leasekeeper.ErrLost))
	// Output: true
}

func ExampleBackend_Inject() {
	ctx := context.Background()
	store := memory.New()
	client := store.Backend()
	k, err := leasekeeper.New(client)
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	// The first answer to a claim gets lost. The keeper finds out the outcome.
	client.Inject(memory.Fault{Kind: memory.LoseAnswer, Op: memory.Claim, Times: 1})
	l, err := k.TryAcquire(ctx, "jobs/nightly", leasekeeper.WithTTL(time.Second))
	fmt.Println(l, err)
	// Output: jobs/nightly (token 1) <nil>
}

func ExampleStore_Delete() {
	ctx := context.Background()
	clocks := memory.NewClock()
	store := memory.New(memory.WithClock(clocks))
	k, err := leasekeeper.New(store.Backend(), leasekeeper.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	l, err := k.Acquire(ctx, "jobs/nightly")
	if err != nil {
		log.Fatal(err)
	}
	store.Delete("jobs/nightly")
	clocks.Advance(4 * time.Second) // the keeper renews after a third of the TTL
	<-l.Context().Done()
	fmt.Println(errors.Is(l.Check(), leasekeeper.ErrLost))
	// Output: true
}

func ExampleNewClock() {
	ctx := context.Background()
	clocks := memory.NewClock()
	k, err := leasekeeper.New(memory.New(memory.WithClock(clocks)).Backend())
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	l, err := k.Acquire(ctx, "jobs/nightly")
	if err != nil {
		log.Fatal(err)
	}
	clocks.Suspend(time.Hour) // the machine sleeps
	fmt.Println(l.Check())
	// Output: jobs/nightly: lease lost (token 1): no renewal was acknowledged before the deadline
}

func ExampleNamed() {
	ctx := context.Background()
	k, err := leasekeeper.Open(ctx, "memory:tests-of-mine") // as the program under test does
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	store := memory.Named("tests-of-mine") // as the test does, to inject faults
	store.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Claim, Times: 1})
	_, err = k.TryAcquire(ctx, "jobs/nightly")
	fmt.Println(err)
	// Output: memory: claim: unavailable
}
