// Package leasekeeper lets one process at a time do something: run a nightly job, lead, own a shard. It holds leases on
// names in a store that all competing processes share: a Leasekeeper server, etcd, a database (SQLite, PostgreSQL,
// MongoDB), or, in tests, the memory of the process.
//
//	k, err := leasekeeper.Open(ctx, "leasekeeper://127.0.0.1:2379")
//	…
//	defer k.Close()
//	err = k.Run(ctx, "jobs/nightly-backup", func(ctx context.Context, l *leasekeeper.Lease) error {
//		return backUp(ctx, l.Token()) // ctx ends when the lease is lost
//	})
//
// A lease is a promise with an end: you alone hold this name until that moment; renew it or lose it. A [Keeper] renews
// the leases of a program, and knows at every moment how long the program can rely on each of them.
//
// # What is promised
//
//   - A lease's context ends before another process can hold the name: when the network drops every packet, when the
//     store is gone, when the machine slept, when an operator deleted the lease in the store. [context.Cause] returns
//     the reason. A lost lease never comes back. There are two exceptions: the process is not running at that moment,
//     or another client ended the lease by force (it revoked the lease at once, transferred it, or deleted it in the
//     store). The holder finds out about that at its next renewal.
//   - The clocks of two machines are never compared, and need not agree. The keeper counts what the store granted on
//     this machine's clocks, from before it sent the request, less what the rates of the clocks may differ
//     ([WithDrift]). It reads two clocks: one counts the time that a machine sleeps, the other is never slewed. The
//     lease is over when either of them is past the deadline.
//   - Every lease has a fencing token, higher than that of every earlier holder of the name.
//   - On a server, on etcd and in memory, waiters get a name in the order of their claims. In a database the waiters of
//     one keeper do; the order between processes depends on the database, and the backend's package documents it.
//   - Goroutines that wait for one name through one keeper get it in the order of their calls, each with a token of its own.
//     They have one place in the store's queue. So several keepers get a name in turns, however many goroutines each has.
//   - The outcome of a request is never guessed. A claim without an answer is resolved: it becomes this lease, or the
//     keeper releases it. A release succeeds only if the store has confirmed it.
//   - A call ends with its context. A wait that ends early leaves no place in the queue: the keeper releases what may
//     have reached the store. No goroutine outlives [Keeper.Close].
//
// # What is not promised
//
// A process that is not running acts late. The scheduler, a debugger, a garbage collection or a paused virtual machine
// can stop any program between any two of its instructions. Meanwhile its lease may end, and another process may hold
// the name; the paused program does not know that when it goes on. No lock service can prevent that from outside. So:
//
//   - Send [Lease.Token] with every write, and let the resource refuse a token smaller than the greatest it has seen.
//     Package fence does that for many resources.
//   - Where the resource cannot do that, call [Lease.Check] just before the act, and give the act a time limit well
//     below [Lease.Remaining]. That makes the window small; it does not close it.
//
// A machine that was cloned with its memory, or frozen without either of its clocks noticing, breaks the assumptions
// about clocks.
//
// # How it is used
//
// [Keeper.Run] is for work that has an end: it waits for the name, runs a function, and releases the name.
// [Keeper.Campaign] is for a role: it does the same again and again. [Keeper.Acquire] and [Keeper.TryAcquire] return
// the [Lease] itself. [Keeper.Get], [Keeper.List] and [Keeper.Watch] report who holds what, and [Lease.Announce]
// publishes how to reach the holder. [Keeper.Resume] continues a lease whose token another process handed over.
//
// One keeper is enough for a program. However many leases it holds, it renews all of them with one message every third
// of the TTL; a lease costs some 600 bytes. A lease that is not renewed is in doubt after half of its time, and the
// keeper tries other endpoints of the store long before the lease ends.
//
// Names are paths such as jobs/nightly-backup, of printable UTF-8. They do not nest: the holder of jobs/nightly holds
// neither jobs nor jobs/nightly/eu.
//
// [errors.Is] tells errors apart; the variables below are their kinds. [HeldError] names the holder. An
// [UnsupportedError] names what a store cannot do.
//
// # How it works
//
// A state machine without goroutines or clocks (internal/keepalive) decides when to renew, what an answer is worth, and
// when a lease is lost. This package carries its decisions out. Each keeper has one goroutine that watches the time and
// one each for the log and for hooks, if there are any. Each message of renewals and each release has a goroutine of its own. No
// other goroutine runs. Stores are behind the interfaces of package backend. Codes such as C1 and T4 are rules of
// docs/design/time-and-identity.md.
//
// The package never reads the environment, flags or files, never logs unless it has a logger ([WithLogger]), and never
// shows the password of a URL.
package leasekeeper
