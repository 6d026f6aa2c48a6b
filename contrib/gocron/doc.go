// Package gocronlease lets several processes run one gocron schedule, with each job in one process at a time. It brings
// gocron v2 ([github.com/go-co-op/gocron/v2]) a [Locker], which holds one lease for each run of a job, and an [Elector],
// which holds one lease for the whole scheduler.
//
// # What is promised
//
//   - While a run of a job lasts, no other process runs a job of that name under a Locker on the same store. No other
//     process runs a job under an Elector of the same name.
//   - The context of a function that [Locker.Task] or [Elector.Task] runs ends before another process can hold the name.
//     The exceptions are those of package leasekeeper: a process that is not running at that moment, and an operator who
//     ends the lease by force. So send the token of the lease with every write.
//   - The name is never released while the function still runs: not when its context ends, when the scheduler shuts
//     down, nor when the keeper is closed. If the keeper gives up on waiting, the lease runs out by itself.
//   - A job whose claim has an unknown outcome does not run. The keeper then releases what the claim may have become.
//   - With [WithSplay], a scheduler whose clock is late by less than that does not run a job a second time.
//
// # How it works
//
// gocron calls [Locker.Lock] before each run of a job and Unlock after it. Lock claims the name of the job with
// [leasekeeper.Keeper.Run] and does not wait: another process that holds the name runs the job. gocron has no way to
// hand a context from the lock to the function. So the Locker remembers which of gocron's contexts runs under which
// lease, and [Locker.Lease] and [Locker.Task] look it up.
//
// An Elector takes part in an election with [leasekeeper.Keeper.Campaign]. gocron calls [Elector.IsLeader] before each
// run of a job. Functions of [Elector.Task] are counted: a leader that resigns waits for them.
//
// # What it never does
//
// It does not make up for a run that no process could do. It compares no clocks and knows no ticks, so it cannot tell
// two runs of one tick from two ticks, except by the splay. It does not end the context of a function that gocron runs
// without Task or Lease: such a function finds out about a lost lease only when it asks. It starts one goroutine for
// each run under a Locker and none for an Elector.
package gocronlease
