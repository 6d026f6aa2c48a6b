package gocronlease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/memory"
	gocronlease "github.com/leasekeeper/leasekeeper/contrib/gocron"
)

// Each process has this schedule. One of them runs each tick.
func ExampleNewLocker() {
	ctx := context.Background()
	keeper, err := leasekeeper.Open(ctx, "memory:") // or "postgres://db.example.org/app"
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	locker := gocronlease.NewLocker(keeper,
		gocronlease.WithPrefix("app/jobs/"),
		gocronlease.WithSplay(100*time.Millisecond), // above the difference between the machines' clocks
		gocronlease.WithLease(leasekeeper.WithTTL(10*time.Second)))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	_, err = scheduler.NewJob(
		gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		locker.Task(func(ctx context.Context, lease *leasekeeper.Lease) error {
			defer close(done)
			fmt.Println("backing up under", lease)
			return nil
		}),
		gocron.WithName("backup"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, name string, err error) {
			log.Printf("%s does not run here: %v", name, err)
		})))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	fmt.Println(scheduler.Shutdown())
	// Output:
	// backing up under app/jobs/backup (token 1)
	// <nil>
}

// A function with parameters of its own finds its lease by its context.
func ExampleLocker_Lease() {
	ctx := context.Background()
	keeper, err := leasekeeper.Open(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	locker := gocronlease.NewLocker(keeper)
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	report := func(ctx context.Context, region string) error {
		defer close(done)
		lease, ok := locker.Lease(ctx)
		if !ok {
			return gocronlease.ErrNoLease
		}
		ctx = lease.Context() // ends when the lease is lost
		fmt.Println("reporting on", region, "with token", lease.Token(), ctx.Err())
		return nil
	}
	_, err = scheduler.NewJob(
		gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(report, "eu"),
		gocron.WithName("report/eu"),
		gocron.WithDistributedJobLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	fmt.Println(scheduler.Shutdown())
	// Output:
	// reporting on eu with token 1 <nil>
	// <nil>
}

// Each process has this schedule. The leader runs all jobs.
func ExampleNewElector() {
	ctx, stop := context.WithCancel(context.Background())
	keeper, err := leasekeeper.Open(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	elector := gocronlease.NewElector(keeper, "app/scheduler", leasekeeper.WithCard("10.0.0.1:8080"))
	over := make(chan error)
	go func() { over <- elector.Campaign(ctx) }() // resigns when ctx ends
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{}, 100)
	_, err = scheduler.NewJob(
		gocron.DurationJob(20*time.Millisecond),
		elector.Task(func(ctx context.Context, lease *leasekeeper.Lease) error {
			done <- struct{}{}
			return nil
		}))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-done
	fmt.Println("leads:", elector.IsLeader(ctx))
	stop()
	fmt.Println(<-over)
	fmt.Println("leads:", elector.IsLeader(ctx))
	fmt.Println(scheduler.Shutdown())
	// Output:
	// leads: <nil>
	// context canceled
	// leads: gocronlease: this process is not the leader
	// <nil>
}
