// Package cronlease lets several processes run one schedule of robfig/cron v3 ([github.com/robfig/cron/v3]), with each
// job in one process at a time. [Job] makes a job of a function with a context. [Wrapper] wraps jobs that exist.
//
// # What is promised
//
//   - While a run of a job lasts, no other process runs a job under the same name on the same store.
//   - The context of a function of [Job] ends before another process can hold the name. The exceptions are those of
//     package leasekeeper: a process that is not running at that moment, and an operator who ends the lease by force. So
//     send the token of the lease with every write.
//   - The name is never released while the job still runs: not when its context ends, when cron stops, nor when the
//     keeper is closed. If the keeper gives up on waiting, the lease runs out by itself.
//   - A job whose claim has an unknown outcome does not run. The keeper then releases what the claim may have become.
//   - With [WithSplay], a process whose clock is late by less than that does not run a job a second time.
//   - A panic of a job goes on, after the name was released. [cron.Recover] outside of Wrapper catches it.
//
// # How it works
//
// Each run is one call of [leasekeeper.Keeper.Run] on cron's goroutine for it. It does not wait for the name: another
// process that holds the name runs the job. That and all errors go to a logger of cron.
//
// # What it never does
//
// It does not make up for a run that no process could do. It compares no clocks and knows no ticks, so it cannot tell
// two runs of one tick from two ticks, except by the splay. It cannot end a job under [Wrapper] whose lease is lost,
// because such a job has no context. It starts no goroutine.
package cronlease
