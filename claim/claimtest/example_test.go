package claimtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

// request is the claim of the program under test.
func request(holder string) claim.Request {
	return claim.Request{Name: "jobs/nightly", ID: backend.ID(claim.NewOp()), Holder: backend.Holder{ID: holder}, TTL: time.Minute}
}

func ExampleNewMemory() {
	ctx := context.Background()
	database := claimtest.NewMemory()
	a, _ := claim.NewClient(database.Open(), claim.Options{})
	b, _ := claim.NewClient(database.Open(), claim.Options{})
	l, err := a.Claim(ctx, request("a"))
	fmt.Println(l.Token(), err)
	_, err = b.Claim(ctx, request("b"))
	fmt.Println(errors.Is(err, backend.ErrHeld))
	// Output:
	// 1 <nil>
	// true
}

func ExampleMemory_OpenNamespace() {
	database := claimtest.NewMemory()
	_, err := database.OpenNamespace("billing", true) // in store-clock mode
	fmt.Println(err)
	_, err = database.OpenNamespace("billing", false)
	fmt.Println(err)
	// Output:
	// <nil>
	// memory: namespace "billing": invalid: it was made for another mode: open it with store-clock mode true
}

func ExampleFaulty() {
	ctx := context.Background()
	network := claimtest.Faulty(claimtest.NewMemory().Open())
	defer network.Close(ctx)
	c, _ := claim.NewClient(network, claim.Options{})

	// The answer to the next write gets lost. The client finds out the outcome.
	network.Inject(claimtest.Call{Method: claimtest.Swap}, 1, claimtest.Fault{LoseAnswer: true})
	l, err := c.Claim(ctx, request("a"))
	fmt.Println(l.Token(), err)

	// No request arrives. That alone does not lose the lease.
	heal := network.Inject(claimtest.Call{}, 0, claimtest.Fault{LoseRequest: true})
	fmt.Println(errors.Is(c.Extend(ctx, l, 0), backend.ErrLost))
	heal()
	fmt.Println(c.Extend(ctx, l, 0))
	// Output:
	// 1 <nil>
	// false
	// <nil>
}

func ExampleNetwork_Plan() {
	ctx := context.Background()
	network := claimtest.Faulty(claimtest.NewMemory().Open())
	defer network.Close(ctx)
	network.Plan(func(c claimtest.Call) claimtest.Fault {
		if c.Name == "jobs/nightly" && c.Method == claimtest.Get {
			return claimtest.Fault{Err: backend.ErrCorrupt}
		}
		return claimtest.Fault{Delay: time.Millisecond}
	})
	c, _ := claim.NewClient(network, claim.Options{})
	_, err := c.Claim(ctx, request("a"))
	fmt.Println(err)
	// Output: memory: get: corrupt
}

func ExampleNetwork_ChangePrimary() {
	ctx := context.Background()
	database := claimtest.NewMemory()
	network := claimtest.Faulty(database.Open())
	defer network.Close(ctx)
	network.Inject(claimtest.Call{Method: claimtest.RaiseFloor}, 1, claimtest.Fault{Delay: time.Hour})

	outcome := make(chan error)
	go func() {
		_, err := network.RaiseFloor(ctx, 7)
		outcome <- err
	}()
	for { // until the request is under way
		network.ChangePrimary(true)
		select {
		case err := <-outcome:
			fmt.Println(err)
			return
		case <-time.After(time.Millisecond):
		}
	}
	// Output: memory: raise the floor: outcome unknown: the primary has changed
}

// A store's own test calls Run like this.
func ExampleRun() {
	database := claimtest.NewMemory()
	test := func(t *testing.T) {
		claimtest.Run(t, claimtest.Config{
			Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
				return database.OpenNamespace(namespace, storeClock)
			},
			Damage: func(t testing.TB, namespace, name string) { database.Damage(namespace, name) },
			Cannot: []string{claimtest.Local, claimtest.Queue},
		})
	}
	_ = test // go test runs it
}

func ExampleRunCrashes() {
	test := func(t *testing.T, store claim.Store, crashAndStart func()) {
		claimtest.RunCrashes(t, store, crashAndStart) // crashAndStart kills the server of the database, and starts it
	}
	_ = test // go test runs it, with a real server
}

func ExamplePlain() {
	_, batches := claimtest.Plain(claimtest.NewMemory().Open()).(claim.Batcher)
	fmt.Println(batches)
	// Output: false
}
