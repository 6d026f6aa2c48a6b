//go:build unix

package asynqlease_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hibiken/asynq"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/memory"
	asynqlease "github.com/leasekeeper/leasekeeper/contrib/asynq"
)

// Each process calls Campaign. One of them runs the scheduler.
func ExampleCampaign() {
	ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
	keeper, err := leasekeeper.Open(ctx, "memory:")       // or "postgres://db.example.org/app"
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()

	redis := asynq.RedisClientOpt{Addr: "127.0.0.1:6379"}
	err = asynqlease.Campaign(ctx, keeper, "app/scheduler", redis, func(r asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
		scheduler := asynq.NewScheduler(r, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel}) // with r, not with redis
		_, err := scheduler.Register("@every 1h", asynq.NewTask("report", nil))
		fmt.Println("this process runs the scheduler:", err)
		stop() // the process is to end
		return scheduler, err
	})
	fmt.Println(err)
	// Output:
	// this process runs the scheduler: <nil>
	// context canceled
}

// A NewScheduler may also make a PeriodicTaskManager.
func ExampleNewScheduler() {
	var newScheduler asynqlease.NewScheduler = func(r asynq.RedisConnOpt) (asynqlease.Scheduler, error) {
		return asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{
			RedisConnOpt:               r, // not RedisUniversalClient: it would not be under the lease
			PeriodicTaskConfigProvider: new(provider),
		})
	}
	var scheduler asynqlease.Scheduler
	scheduler, err := newScheduler(asynq.RedisClientOpt{Addr: "127.0.0.1:6379"})
	fmt.Printf("%T %v\n", scheduler, err)
	// Output: *asynq.PeriodicTaskManager <nil>
}
