package cronlease_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/leasekeeper/leasekeeper"
	cronlease "github.com/leasekeeper/leasekeeper/contrib/cron"
)

// Each process has this schedule. One of them runs each tick.
func ExampleJob() {
	ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
	keeper, err := leasekeeper.Open(ctx, "memory:")       // or "postgres://db.example.org/app"
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	c := cron.New(cron.WithSeconds())
	_, err = c.AddJob("* * * * * *", cronlease.Job(ctx, keeper, "jobs/backup",
		func(ctx context.Context, lease *leasekeeper.Lease) error {
			fmt.Println("backing up under", lease)
			stop()
			return nil
		},
		cronlease.WithSplay(100*time.Millisecond), // above the difference between the machines' clocks
		cronlease.WithLease(leasekeeper.WithTTL(10*time.Second)),
		cronlease.WithLogger(cron.DiscardLogger)))
	if err != nil {
		log.Fatal(err)
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	// Output: backing up under jobs/backup (token 1)
}

// The wrapper is for a job that exists. cron.Recover stands outside of it.
func ExampleWrapper() {
	ctx := context.Background()
	keeper, err := leasekeeper.Open(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	job := cron.FuncJob(func() { fmt.Println("backing up") })
	chain := cron.NewChain(cron.Recover(cron.DefaultLogger), cronlease.Wrapper(ctx, keeper, "jobs/backup"))
	c := cron.New()
	if _, err := c.AddJob("15 3 * * *", chain.Then(job)); err != nil {
		log.Fatal(err)
	}
	c.Entries()[0].WrappedJob.Run() // what cron does at a quarter past three
	// Output: backing up
}
