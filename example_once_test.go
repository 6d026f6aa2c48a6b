package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func ExampleKeeper_Once() {
	ctx, store := context.Background(), memory.New() // shared by all machines with this job
	midnight := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, host := range []string{"host-1", "host-2"} {
		k := open(store, leasekeeper.WithHolder(host))
		err := k.Once(ctx, "jobs/nightly-backup", leasekeeper.TickAt(midnight), func(ctx context.Context, l *leasekeeper.Lease) error {
			fmt.Println(host, "makes the backup")
			return nil
		})
		fmt.Println(host, err)
		k.Close()
	}
	// Output:
	// host-1 makes the backup
	// host-1 <nil>
	// host-2 jobs/nightly-backup: the tick 2026-03-01T00:00:00Z is done
}

func ExampleAtMostOnce() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	send := func(ctx context.Context, l *leasekeeper.Lease) error {
		fmt.Println("the invoices go out")
		return errors.New("the mail server hangs up")
	}
	for range 2 {
		fmt.Println(k.Once(ctx, "invoices", leasekeeper.TickNumber(202603), send, leasekeeper.AtMostOnce()))
	}
	// Output:
	// the invoices go out
	// the mail server hangs up
	// invoices: the tick 202603 is done
}

func ExampleHoldAtLeast() {
	ctx, store := context.Background(), memory.New()
	a, b := open(store), open(store)
	defer a.Close()
	defer b.Close()
	err := a.Run(ctx, "cache/warm-up", func(context.Context, *leasekeeper.Lease) error { return nil }, leasekeeper.HoldAtLeast(time.Hour))
	fmt.Println(err)
	_, err = b.TryAcquire(ctx, "cache/warm-up")
	fmt.Println(errors.Is(err, leasekeeper.ErrHeld))
	// Output:
	// <nil>
	// true
}

func ExampleKeeper_Mark() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	_ = k.Once(ctx, "reports", leasekeeper.TickNumber(41), func(context.Context, *leasekeeper.Lease) error { return nil })
	m, err := k.Mark(ctx, "reports")
	fmt.Println(m.Tick, err)
	// Output: 41 <nil>
}

func ExampleKeeper_ReplaceMark() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	none := func(context.Context, *leasekeeper.Lease) error { return nil }
	_ = k.Once(ctx, "reports", leasekeeper.TickNumber(999), none) // a mistake: no smaller tick runs any more
	wrong, err := k.Mark(ctx, "reports")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(k.ReplaceMark(ctx, "reports", wrong, leasekeeper.Mark{Tick: leasekeeper.TickNumber(41)}))
	fmt.Println(k.Once(ctx, "reports", leasekeeper.TickNumber(42), none))
	// Output:
	// true <nil>
	// <nil>
}

func ExampleLease_Complete() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	tick, err := leasekeeper.ParseTick("2026-03-01T12:00:00Z")
	if err != nil {
		log.Fatal(err)
	}
	l, err := k.Acquire(ctx, "reports")
	if err != nil {
		log.Fatal(err)
	}
	if err := l.CheckTick(ctx, tick); errors.Is(err, leasekeeper.ErrDone) {
		return // and release the lease
	}
	fmt.Println("the report is made")
	fmt.Println(l.Complete(ctx, tick))
	// Output:
	// the report is made
	// <nil>
}
