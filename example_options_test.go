package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/clock"
)

func ExampleNoWait() {
	ctx := context.Background()
	store := memory.New()
	a, b := open(store), open(store)
	defer a.Close()
	defer b.Close()
	if _, err := a.Acquire(ctx, "jobs/nightly"); err != nil {
		log.Fatal(err)
	}
	err := b.Run(ctx, "jobs/nightly", func(context.Context, *leasekeeper.Lease) error { return nil }, leasekeeper.NoWait())
	fmt.Println(errors.Is(err, leasekeeper.ErrHeld))
	// Output: true
}

func ExampleWithTTL() {
	ctx := context.Background()
	k := open(memory.New(), leasekeeper.WithTTL(time.Minute)) // for all leases of the keeper
	defer k.Close()
	l, err := k.Acquire(ctx, "leader", leasekeeper.WithTTL(5*time.Second)) // for this lease only
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.TTL())
	// Output: 5s
}

func ExampleWithCard() {
	ctx := context.Background()
	k := open(memory.New(), leasekeeper.WithCard("10.0.0.1:8080"))
	defer k.Close()
	if _, err := k.Acquire(ctx, "leader"); err != nil {
		log.Fatal(err)
	}
	i, err := k.Get(ctx, "leader")
	fmt.Println(i.Holder.Card.Text, err)
	// Output: 10.0.0.1:8080 <nil>
}

// A leader that can no longer write its disk stops leading, and another candidate takes over.
func ExampleWithHealth() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	writable := func(context.Context) error { return errors.New("the disk is full") }
	err := k.Run(ctx, "leader", func(ctx context.Context, l *leasekeeper.Lease) error {
		<-ctx.Done()
		return nil
	}, leasekeeper.WithHealth(writable))
	fmt.Println(err)
	// Output: leader: tenure ended early (token 1): its health check failed: the disk is full
}

// A backup that takes longer than an hour is asked to stop. Its name is free when the function has returned.
func ExampleHoldAtMost() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	err := k.Run(ctx, "jobs/nightly-backup", func(ctx context.Context, l *leasekeeper.Lease) error {
		return nil // in time
	}, leasekeeper.HoldAtMost(time.Hour))
	fmt.Println(err)
	// Output: <nil>
}

// A program counts lost leases, and warns when little is left at a renewal.
func ExampleWithHook() {
	ctx := context.Background()
	k := open(memory.New(), leasekeeper.WithHook(func(r leasekeeper.Report) {
		switch r := r.(type) {
		case leasekeeper.Renewed:
			if r.Left < 2*time.Second {
				log.Printf("%s was renewed with only %v left", r.Name, r.Left)
			}
		case leasekeeper.Lost:
			log.Printf("%s was lost after %v: %v", r.Name, r.For, r.Why)
		case leasekeeper.Released:
			fmt.Println(r.Name, "was released")
		}
	}))
	l, err := k.Acquire(ctx, "jobs/nightly-backup")
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Release(ctx); err != nil {
		log.Fatal(err)
	}
	if err := k.Close(); err != nil { // waits until the hook has received all reports
		log.Fatal(err)
	}
	// Output: jobs/nightly-backup was released
}

func ExampleWithHolder() {
	ctx := context.Background()
	k := open(memory.New(), leasekeeper.WithHolder("host-1"))
	defer k.Close()
	if _, err := k.Acquire(ctx, "leader"); err != nil {
		log.Fatal(err)
	}
	_, err := k.TryAcquire(ctx, "leader")
	fmt.Println(err)
	// Output: leader is held already by this keeper (token 1): release it first, or share its lease
}

func ExampleWithLogger() {
	ctx := context.Background()
	untimed := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: untimed}))
	k := open(memory.New(), leasekeeper.WithLogger(logger), leasekeeper.WithHolder("host-1"))
	defer k.Close()
	if err := k.Run(ctx, "leader", func(context.Context, *leasekeeper.Lease) error { return nil }); err != nil {
		log.Fatal(err)
	}
	// Output:
	// level=INFO msg="lease acquired" name=leader token=1 holder=host-1 ttl=15s
	// level=INFO msg="lease released" name=leader token=1 holder=host-1
}

func ExampleWithDrift() {
	ctx := context.Background()
	store := memory.New(memory.WithClock(memory.NewClock()))
	k := open(store, leasekeeper.WithTTL(10*time.Second), leasekeeper.WithDrift(clock.Drift(100_000))) // ten per cent
	defer k.Close()
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Remaining().Round(time.Millisecond))
	// Output: 8.182s
}

func ExampleWithPriority() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	l, err := k.Acquire(ctx, "shards/7", leasekeeper.WithPriority(10)) // before other waiters, after the holder
	fmt.Println(l.Name(), err)
	// Output: shards/7 <nil>
}
