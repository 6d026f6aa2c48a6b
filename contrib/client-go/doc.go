// Package clientgolease lets client-go's leader election run on Leasekeeper. A [Lock] is a
// k8s.io/client-go/tools/leaderelection/resourcelock.Interface over a [leasekeeper.Keeper]. The elector stays client-go's
// own.
//
//	lock, err := clientgolease.New(keeper, "leaders/web", clientgolease.Options{})
//	…
//	leaderelection.RunOrDie(ctx, lock.Config(leaderelection.LeaderCallbacks{
//		OnStartedLeading: serve, // its context ends when the lease is lost
//		OnStoppedLeading: func() {},
//	}))
//
// # What it promises
//
//   - A leader holds a lease. Update succeeds only while [leasekeeper.Lease.Check] returns nil and the lease lasts longer
//     than the elector takes to give up.
//   - The context of OnStartedLeading ends when the lease is lost, before another candidate can lead. It does not wait for
//     the elector, which gives up later. A paused process and a forced end are exceptions, as for every lease.
//   - OnStoppedLeading is called before a lease ends that is no longer renewed. It is called up to RetryPeriod and
//     RenewDeadline after a forced end, because the elector polls.
//   - The name is never released while OnStartedLeading runs. If that function returned before its context ended, it may
//     have started something, so the name is not released before OnStoppedLeading has returned either.
//   - An elector that lost its lease does not get another one before it has called OnStoppedLeading and
//     OnStartedLeading has returned. client-go's own locks let an elector lead on in that case.
//   - Two candidates with the same identity are still two candidates.
//   - [Lock.Lease] has the fencing token. LeaderTransitions of a record is that token.
//
// # How it works
//
// The elector knows a record that it reads and replaces. The lock makes these calls mean:
//
//   - Get, for an elector that leads, answers from memory while the lease is held, else from the store.
//   - Get, for a candidate, answers at once with a leader that the candidate has not seen. For a leader that it has seen,
//     Get waits in the name's queue until the lease is granted, until there is another leader, or until its context
//     ends. So a released name is taken at once, and not at the next poll.
//   - A record is vacant only if this lock holds the lease. RenewTime of another leader's record is always the present
//     time: the store decides when a lease has ended, not the elector's observation.
//   - Update and Create with an identity accept the lease that Get was granted, and check it from then on. They send
//     nothing: the keeper renews the lease. They never claim.
//   - Update without an identity (ReleaseOnCancel) ends the context of OnStartedLeading, waits for that function, and
//     releases. Without ReleaseOnCancel the name is released one LeaseDuration after OnStoppedLeading has returned.
//
// The lease is held by [leasekeeper.Keeper.Run]. So [leasekeeper.Keeper.Close] ends the context of OnStartedLeading and
// waits for that function too.
//
// # What it never does
//
// It never uses the Kubernetes API: RecordEvent does nothing. It does not support coordinated leader election. It never
// claims a name unless it sees when the work under it ends: the elector must have the callbacks of [Lock.Config], or run
// within [Lock.Run].
package clientgolease
