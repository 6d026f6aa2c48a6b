package leasekeeper_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func ExampleLease_Check() {
	ctx := context.Background()
	store := memory.New()
	k := open(store)
	defer k.Close()
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Check())
	_ = l.Release(ctx)
	fmt.Println(l.Check())
	// Output:
	// <nil>
	// leader: lease lost (token 1): it was released
}

func ExampleLease_Context() {
	ctx := context.Background()
	// Clocks that a test moves: here a machine sleeps for a minute.
	clocks := memory.NewClock()
	k := open(memory.New(memory.WithClock(clocks)))
	defer k.Close()
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	clocks.Suspend(time.Minute)
	<-l.Context().Done()
	fmt.Println(context.Cause(l.Context()))
	// Output: leader: lease lost (token 1): no renewal was acknowledged before the deadline
}

// A worker takes no new work while its lease is in doubt, and goes on when the store has answered again.
func ExampleLease_InDoubt() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	l, err := k.Acquire(ctx, "shards/7")
	if err != nil {
		log.Fatal(err)
	}
	work := make(chan string, 1)
	work <- "a job"
	for doubtful := false; ; {
		accept := work
		if doubtful {
			accept = nil
		}
		select {
		case job := <-accept:
			fmt.Println("does", job)
			if err := l.Release(ctx); err != nil {
				log.Fatal(err)
			}
		case d, held := <-l.InDoubt():
			if !held {
				fmt.Println("the lease has ended")
				return
			}
			doubtful = d
		}
	}
	// Output:
	// does a job
	// the lease has ended
}

func ExampleLease_Remaining() {
	ctx := context.Background()
	k := open(memory.New(memory.WithClock(memory.NewClock())), leasekeeper.WithTTL(10*time.Second))
	defer k.Close()
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	// Less than the TTL, because the clocks here and in the store may run at rates that differ.
	fmt.Println(l.Remaining().Round(time.Millisecond))
	_ = l.Release(ctx)
	fmt.Println(l.Remaining())
	// Output:
	// 9.802s
	// 0s
}

func ExampleLease_Token() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	for range 2 {
		err := k.Run(ctx, "jobs/nightly", func(ctx context.Context, l *leasekeeper.Lease) error {
			fmt.Println(l, "writes with token", l.Token())
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// jobs/nightly (token 1) writes with token 1
	// jobs/nightly (token 2) writes with token 2
}

func ExampleLease_Announce() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Announce(ctx, "serving on 10.0.0.1:8080"); err != nil {
		log.Fatal(err)
	}
	i, err := k.Get(ctx, "leader")
	fmt.Println(i.Holder.Card.Text, err)
	// Output: serving on 10.0.0.1:8080 <nil>
}

func ExampleLease_Release() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Release(ctx))
	i, err := k.Get(ctx, "leader")
	fmt.Println(i.Held, err)
	// Output:
	// <nil>
	// false <nil>
}

func ExampleLease_Raw() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	// Functions of the backend's package take its own type of lease.
	fmt.Println(l.Raw().Name())
	// Output: leader
}

func ExampleLease_Holder() {
	ctx := context.Background()
	k := open(memory.New(), leasekeeper.WithHolder("host-1"))
	defer k.Close()
	l, err := k.Acquire(ctx, "leader", leasekeeper.WithCard("blue"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Holder().ID, l.Holder().Card.Text, l.Holder().Card.PID == os.Getpid())
	// Output: host-1 blue true
}
