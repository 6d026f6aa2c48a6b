// Package controllerlease lets a manager of controller-runtime lead under a lease of Leasekeeper. The manager and its
// elector stay controller-runtime's and client-go's own.
//
//	election, err := controllerlease.New(keeper, "controllers/web", ctrl.Options{Scheme: scheme})
//	…
//	mgr, err := ctrl.NewManager(config, election.Options())
//	…
//	err = election.Start(ctx, mgr) // in place of mgr.Start
//
// # What it promises
//
//   - The controllers of one manager at a time run, as long as processes run at all. The contexts of all runnables end
//     when the lease is lost, before another manager can lead.
//   - The name is released when the manager has stopped, and not before. If a runnable does not end within
//     GracefulShutdownTimeout, the name is not released, and Start returns a [clientgolease.ErrStillRunning].
//   - The next manager begins as soon as the name is released: its caches and webhooks run already.
//   - Start returns a [leasekeeper.ErrLost] if the lease was lost. A manager starts once, so the process should exit.
//
// # How it works
//
// [Election.Options] puts a [clientgolease.Lock] into LeaderElectionResourceLockInterface. That lock lets a waiting
// elector stand in the name's queue, so that it need not poll. controller-runtime gives its runnables contexts that do not
// depend on the election. So [Election.Start] gives the manager a context that ends with the lease.
//
// The alternative was to run a manager within [leasekeeper.Keeper.Campaign], without leader election. Then a manager that
// waits has no caches and serves no webhooks, and begins to fill its caches when it leads.
//
// # What it never does
//
// It never uses the Kubernetes API: there is no Lease object, and no event when the leader changes.
package controllerlease
