package clientgolease_test

import (
	"context"
	"fmt"
	"log"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/memory"
	clientgolease "github.com/leasekeeper/leasekeeper/contrib/client-go"
)

func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	keeper, err := leasekeeper.Open(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()
	lock, err := clientgolease.New(keeper, "leaders/web", clientgolease.Options{Identity: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lock.Identity(), lock.Describe())
	leaderelection.RunOrDie(ctx, lock.Config(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			fmt.Println("leads under token", lock.Lease().Token())
			stop()
			<-ctx.Done() // the work ends when ctx does
		},
		OnStoppedLeading: func() { fmt.Println("no longer leads") },
	}))
	// Output:
	// web-1 leasekeeper/leaders/web
	// leads under token 1
	// no longer leads
}

func ExampleLock_Config() {
	keeper, err := leasekeeper.Open(context.Background(), "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()
	lock, err := clientgolease.New(keeper, "leaders/web", clientgolease.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := lock.Config(leaderelection.LeaderCallbacks{})
	fmt.Println(config.LeaseDuration, config.RenewDeadline, config.RetryPeriod, config.ReleaseOnCancel)
	// Output: 15s 7s 2s true
}

func ExampleLock_Run() {
	ctx, stop := context.WithCancel(context.Background())
	keeper, err := leasekeeper.Open(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()
	lock, err := clientgolease.New(keeper, "leaders/web", clientgolease.Options{})
	if err != nil {
		log.Fatal(err)
	}
	config := lockedOnly(lock)
	config.Callbacks = leaderelection.LeaderCallbacks{ // a framework's own
		OnStartedLeading: func(context.Context) { fmt.Println("leads"); stop() },
		OnStoppedLeading: func() {},
	}
	err = lock.Run(ctx, func(ctx context.Context) error {
		leaderelection.RunOrDie(ctx, config)
		return nil // nothing of the leader's work goes on
	})
	fmt.Println(err)
	// Output:
	// leads
	// <nil>
}

// lockedOnly returns an elector's configuration as a framework makes it.
func lockedOnly(lock *clientgolease.Lock) leaderelection.LeaderElectionConfig {
	t := lock.Timing()
	return leaderelection.LeaderElectionConfig{Lock: lock, LeaseDuration: t.LeaseDuration, RenewDeadline: t.RenewDeadline, RetryPeriod: t.RetryPeriod}
}
