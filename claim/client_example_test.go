package claim_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
)

func ExampleClient_Claim() {
	ctx := context.Background()
	client, err := claim.NewClient(claimtest.NewMemory().Open(), claim.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := claim.Request{Name: "jobs/nightly", Holder: backend.Holder{ID: "worker-1"}, TTL: time.Minute}
	_, _ = rand.Read(request.ID[:])
	lease, err := client.Claim(ctx, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("token", lease.Token(), "- still safe:", client.Now().Before(lease.Until()))

	request.Holder.ID = "worker-2"
	_, _ = rand.Read(request.ID[:])
	_, err = client.Claim(ctx, request)
	fmt.Println(errors.Is(err, backend.ErrHeld))

	fmt.Println(client.Extend(ctx, lease, 0), client.Release(ctx, lease))
	// Output:
	// token 1 - still safe: true
	// true
	// <nil> <nil>
}

func ExampleClient_Get() {
	ctx := context.Background()
	client, err := claim.NewClient(claimtest.NewMemory().Open(), claim.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := claim.Request{Name: "jobs/nightly", Holder: backend.Holder{ID: "worker-1"}, TTL: time.Minute}
	_, _ = rand.Read(request.ID[:])
	if _, err := client.Claim(ctx, request); err != nil {
		fmt.Println(err)
		return
	}
	state, err := client.Get(ctx, "jobs/nightly")
	fmt.Println(state.Record.Holder, state.Over, state.Ends.Round(time.Minute), err)
	// Output: worker-1 false 1m0s <nil>
}
