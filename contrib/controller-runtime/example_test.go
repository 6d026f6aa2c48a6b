package controllerlease_test

import (
	"context"
	"log"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/memory"
	controllerlease "github.com/leasekeeper/leasekeeper/contrib/controller-runtime"
)

func Example() {
	ctx := ctrl.SetupSignalHandler()
	keeper, err := leasekeeper.Open(ctx, "memory:")
	if err != nil {
		log.Fatal(err)
	}
	election, err := controllerlease.New(keeper, "controllers/web", ctrl.Options{})
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), election.Options())
	if err != nil {
		log.Fatal(err)
	}
	// … add controllers to mgr …
	err = election.Start(ctx, mgr) // releases the name
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := keeper.Shutdown(closing); err != nil {
		log.Print(err)
	}
	if err != nil {
		log.Fatal(err)
	}
}
