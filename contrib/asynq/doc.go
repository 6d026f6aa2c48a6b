// Package asynqlease lets one process at a time run the scheduler of asynq ([github.com/hibiken/asynq]): an
// [asynq.Scheduler] or an [asynq.PeriodicTaskManager]. Other processes stand by. Two schedulers at once would enqueue
// each periodic task twice.
//
// # What is promised
//
//   - [Campaign] starts a scheduler only while its process holds the name, and holds the name until the scheduler's
//     Shutdown has returned. So when a process stops in an orderly way, the next scheduler starts after the end of the
//     previous one.
//   - When the store does not answer, Campaign shuts the scheduler down in the last quarter of the lease. Shutdown has
//     that long before another process can hold the name.
//   - In that quarter and after it the scheduler sends no command that enqueues a task, even if Shutdown hangs. Only
//     commands that remove the scheduler's own entries still pass. This holds for the connections that Campaign hands to
//     the scheduler.
//   - Campaign stands for election again after a lost lease, once the scheduler has shut down.
//
// # What is not promised
//
//   - A command that was sent earlier can reach Redis late: if Redis or the network delays it for more than a quarter of
//     the TTL, it may take effect while another scheduler runs. Redis does not know the lease.
//   - A process that is not running at the moment when it should stop may send one command late. An operator who ends
//     the lease by force lets both schedulers run until the holder's next renewal.
//   - A tick during a change of the holder can be missed, or come twice if the machines' clocks differ. The option
//     [asynq.Unique] of a task, with a time below its interval, makes Redis refuse the second.
//
// # How it works
//
// Campaign calls [leasekeeper.Keeper.Campaign]. A scheduler of asynq cannot be started twice, so the caller's function
// makes a new one for each tenure. It gets connections to Redis with a hook that looks at the lease before each command.
//
// # What it never does
//
// It does not limit asynq's servers and clients: workers run in any number of processes. It installs no handler for
// signals; do not call the scheduler's own Run, which does. It starts no goroutine.
package asynqlease
