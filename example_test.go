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

// open returns a keeper on a store that all keepers of this example share.
func open(store *memory.Store, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	k, err := leasekeeper.New(store.Backend(), o...)
	if err != nil {
		log.Fatal(err)
	}
	return k
}

func ExampleOpen() {
	ctx := context.Background()
	k, err := leasekeeper.Open(ctx, "memory:", leasekeeper.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	l, err := k.TryAcquire(ctx, "jobs/nightly-backup")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Name(), l.TTL(), l.Check())
	// Output: jobs/nightly-backup 10s <nil>
}

func ExampleNew() {
	ctx := context.Background()
	store := memory.New() // shared by all competing keepers
	a, err := leasekeeper.New(store.Backend(), leasekeeper.WithHolder("host-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := leasekeeper.New(store.Backend(), leasekeeper.WithHolder("host-2"))
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	_, err = a.TryAcquire(ctx, "shards/7")
	fmt.Println(err)
	_, err = b.TryAcquire(ctx, "shards/7")
	fmt.Println(errors.Is(err, leasekeeper.ErrHeld))
	// Output:
	// <nil>
	// true
}

func ExampleKeeper_Acquire() {
	ctx := context.Background()
	store := memory.New()
	a, b := open(store), open(store)
	defer a.Close()
	defer b.Close()
	first, err := a.Acquire(ctx, "shards/7")
	if err != nil {
		log.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = first.Release(ctx) })
	second, err := b.Acquire(ctx, "shards/7") // waits
	fmt.Println(err, second.Token() > first.Token())
	// Output: <nil> true
}

func ExampleKeeper_TryAcquire() {
	ctx := context.Background()
	store := memory.New()
	a, b := open(store, leasekeeper.WithHolder("host-1")), open(store)
	defer a.Close()
	defer b.Close()
	if _, err := a.TryAcquire(ctx, "jobs/nightly"); err != nil {
		log.Fatal(err)
	}
	_, err := b.TryAcquire(ctx, "jobs/nightly")
	if held, ok := errors.AsType[*leasekeeper.HeldError](err); ok {
		fmt.Printf("%s is held by %s, token %d\n", held.Name, held.Holder.ID, held.Token)
	}
	// Output: jobs/nightly is held by host-1, token 1
}

func ExampleKeeper_Run() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	err := k.Run(ctx, "jobs/nightly", func(ctx context.Context, l *leasekeeper.Lease) error {
		fmt.Println("running with token", l.Token())
		return nil // the name is released
	})
	fmt.Println(err)
	// Output:
	// running with token 1
	// <nil>
}

func ExampleKeeper_Campaign() {
	k := open(memory.New())
	defer k.Close()
	ctx, stop := context.WithCancel(context.Background())
	err := k.Campaign(ctx, "leader", func(ctx context.Context, l *leasekeeper.Lease) error {
		fmt.Println("leading")
		stop() // as at SIGTERM
		<-ctx.Done()
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading
	// context canceled
}

func ExampleKeeper_Resume() {
	ctx := context.Background()
	store := memory.New()
	a, b := open(store), open(store)
	defer a.Close()
	defer b.Close()
	l, err := a.Acquire(ctx, "migration")
	if err != nil {
		log.Fatal(err)
	}
	// The token was handed to another process, which continues where this one stops.
	resumed, err := b.Resume(ctx, "migration", l.Token())
	fmt.Println(err, resumed.Token() == l.Token())
	// Output: <nil> true
}

func ExampleKeeper_Get() {
	ctx := context.Background()
	k := open(memory.New(), leasekeeper.WithHolder("host-1"), leasekeeper.WithCard("10.0.0.1:8080"))
	defer k.Close()
	if _, err := k.Acquire(ctx, "leader"); err != nil {
		log.Fatal(err)
	}
	i, err := k.Get(ctx, "leader")
	fmt.Println(i.Held, i.Holder.ID, i.Holder.Card.Text, i.Token, err)
	// Output: true host-1 10.0.0.1:8080 1 <nil>
}

func ExampleKeeper_List() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	for _, name := range []string{"shards/1", "shards/2", "leader"} {
		if _, err := k.Acquire(ctx, name); err != nil {
			log.Fatal(err)
		}
	}
	for i, err := range k.List(ctx, "shards/") {
		fmt.Println(i.Name, i.Held, err)
	}
	// Output:
	// shards/1 true <nil>
	// shards/2 true <nil>
}

func ExampleKeeper_Watch() {
	ctx := context.Background()
	store := memory.New()
	k := open(store, leasekeeper.WithHolder("host-1"))
	defer k.Close()
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range k.Watch(ctx, "leader") {
		if err != nil {
			fmt.Println("not watching at present:", err)
			continue
		}
		switch {
		case e.Info.Held:
			fmt.Println(e.Info.Holder.ID, "leads")
			go l.Release(ctx)
		case e.Kind == leasekeeper.Vacated:
			fmt.Println("no leader")
			return
		}
	}
	// Output:
	// host-1 leads
	// no leader
}

// A loop that follows who leads, without asking again and again.
func ExampleKeeper_Observe() {
	ctx := context.Background()
	store := memory.New()
	k := open(store, leasekeeper.WithHolder("host-1"))
	defer k.Close()
	if _, err := k.Acquire(ctx, "leader", leasekeeper.WithCard("10.0.0.1:80")); err != nil {
		log.Fatal(err)
	}
	for info, err := range k.Observe(ctx, "leader") {
		if err != nil {
			log.Fatal(err)
		}
		if info.Held {
			fmt.Println(info.Holder.ID, "leads at", info.Holder.Card.Text)
			break
		}
	}
	// Output: host-1 leads at 10.0.0.1:80
}

// A probe asks whether this process leads, and a handler where the leader is. Both answers come from memory.
func ExampleKeeper_NewElector() {
	ctx, stop := context.WithCancel(context.Background())
	k := open(memory.New())
	defer k.Close()
	e, err := k.NewElector("leader", leasekeeper.WithCard("10.0.0.1:80"))
	if err != nil {
		log.Fatal(err)
	}
	err = e.Campaign(ctx, func(ctx context.Context, l *leasekeeper.Lease) error {
		leader, err := e.Leader(ctx)
		fmt.Println(e.IsLeader(), leader.Held, err)
		stop()
		return nil
	})
	fmt.Println(e.IsLeader(), err)
	// Output:
	// true true <nil>
	// false context canceled
}

func ExampleElector_Campaign() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer stop()
	k := open(memory.New())
	defer k.Close()
	e, err := k.NewElector("leader")
	if err != nil {
		log.Fatal(err)
	}
	err = e.Campaign(ctx, func(ctx context.Context, l *leasekeeper.Lease) error {
		<-ctx.Done() // lead
		return nil
	})
	fmt.Println(err)
	// Output: context deadline exceeded
}

func ExampleElector_IsLeader() {
	k := open(memory.New())
	defer k.Close()
	e, err := k.NewElector("leader")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.IsLeader())
	// Output: false
}

func ExampleElector_Leader() {
	ctx := context.Background()
	k := open(memory.New(), leasekeeper.WithHolder("host-1"))
	defer k.Close()
	e, err := k.NewElector("leader")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := k.Acquire(ctx, "leader"); err != nil {
		log.Fatal(err)
	}
	leader, err := e.Leader(ctx)
	fmt.Println(leader.Holder.ID, err)
	// Output: host-1 <nil>
}

// The lease of the elector has the token, for writes outside the function.
func ExampleElector_Lease() {
	k := open(memory.New())
	defer k.Close()
	e, err := k.NewElector("leader")
	if err != nil {
		log.Fatal(err)
	}
	if l := e.Lease(); l == nil {
		fmt.Println("another process leads, or none")
	}
	// Output: another process leads, or none
}

func ExampleKeeper_History() {
	ctx := context.Background()
	k := open(memory.New(), leasekeeper.WithHolder("host-1"))
	defer k.Close()
	l, err := k.Acquire(ctx, "jobs/nightly-backup")
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Release(ctx); err != nil {
		log.Fatal(err)
	}
	past, err := k.History(ctx, "jobs/nightly-backup", 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range past {
		fmt.Println(t.Holder.ID, t.Why)
	}
	// Output: host-1 released
}

func ExampleKeeper_Revoke() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	l, err := k.Acquire(ctx, "shards/7")
	if err != nil {
		log.Fatal(err)
	}
	if err := k.Revoke(ctx, "shards/7", l.Token(), "the host is drained"); err != nil {
		log.Fatal(err)
	}
	// The holder finds out at its next renewal, and the name is free when its promise has passed.
	info, err := k.Get(ctx, "shards/7")
	fmt.Println(info.Held, err)
	// Output: true <nil>
}

func ExampleKeeper_RevokeNow() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	l, err := k.Acquire(ctx, "shards/7")
	if err != nil {
		log.Fatal(err)
	}
	if err := k.RevokeNow(ctx, "shards/7", l.Token(), "the host is dead"); err != nil {
		log.Fatal(err)
	}
	info, err := k.Get(ctx, "shards/7")
	fmt.Println(info.Held, err)
	// Output: false <nil>
}

func ExampleKeeper_Pin() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	if _, err := k.Acquire(ctx, "shards/7"); err != nil {
		log.Fatal(err)
	}
	if err := k.Pin(ctx, "shards/7", "incident 4711"); err != nil {
		log.Fatal(err)
	}
	err := k.RevokeNow(ctx, "shards/7", 0, "too slow")
	fmt.Println(errors.Is(err, leasekeeper.ErrPinned))
	// Output: true
}

func ExampleKeeper_Unpin() {
	ctx := context.Background()
	k := open(memory.New())
	defer k.Close()
	if _, err := k.Acquire(ctx, "shards/7"); err != nil {
		log.Fatal(err)
	}
	if err := k.Pin(ctx, "shards/7", "incident 4711"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(k.Unpin(ctx, "shards/7"))
	// Output: <nil>
}

// A program that a signal ends: its context is cancelled, and the keeper releases its leases all the same.
func ExampleKeeper_Close() {
	ctx, stop := context.WithCancel(context.Background())
	store := memory.New()
	k := open(store)
	if _, err := k.Acquire(ctx, "leader"); err != nil {
		log.Fatal(err)
	}
	stop() // the signal
	fmt.Println(k.Close())
	info, err := store.Backend().Get(context.Background(), "leader")
	fmt.Println(info.Held, err)
	// Output:
	// <nil>
	// false <nil>
}

func ExampleKeeper_Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	k := open(memory.New())
	l, err := k.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(k.Shutdown(ctx))
	fmt.Println(errors.Is(l.Check(), leasekeeper.ErrLost))
	_, err = k.Acquire(ctx, "leader")
	fmt.Println(err)
	// Output:
	// <nil>
	// true
	// leasekeeper: the keeper is closed
}

func ExampleKeeper_Transfer() {
	ctx, store := context.Background(), memory.New()
	a, b := open(store, leasekeeper.WithHolder("host-1")), open(store, leasekeeper.WithHolder("host-2"))
	defer a.Close()
	defer b.Close()
	l, err := a.Acquire(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		<-l.Context().Done() // stop leading, then
		_ = l.Release(ctx)
	}()
	led := make(chan error)
	go func() {
		led <- b.Run(ctx, "leader", func(_ context.Context, l *leasekeeper.Lease) error {
			fmt.Println(l.Holder().ID, "leads")
			return nil
		})
	}()
	for errors.Is(a.Transfer(ctx, "leader", "host-2"), leasekeeper.ErrInvalid) {
		time.Sleep(time.Millisecond) // host-2 does not wait yet
	}
	fmt.Println(<-led)
	// Output:
	// host-2 leads
	// <nil>
}
