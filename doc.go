// Package leasekeeper makes sure that one process at a time does a thing: a nightly job, a leader, the owner
// of a shard. It holds leases on names, in a store that all competing processes share: a Leasekeeper server, etcd, a
// database (SQLite, PostgreSQL, MongoDB), or for tests the memory of the process.
//
//	k, err := leasekeeper.Open(ctx, "leasekeeper://127.0.0.1:2379")
//	…
//	defer k.Close(ctx)
//	err = k.Run(ctx, "jobs/nightly-backup", func(ctx context.Context, l *leasekeeper.Lease) error {
//		return backUp(ctx, l.Token()) // ctx ends when the lease is lost
//	})
//
// A lease is a promise with an end: you alone hold this name until that moment; renew it or lose it. A
// [Keeper] renews the leases of a program and knows at every moment how long each can be relied on.
//
// # What is promised
//
//   - A lease's context ends before anybody else can hold its name: when the connection is a black hole, when
//     the store is gone, when the machine slept, when somebody deleted the lease in the store. [context.Cause]
//     says why. Once lost a lease never comes back. There are two exceptions: the process is not running at
//     that moment, or somebody else ended the lease by force: revoked it at once, transferred it, or deleted
//     it in the store. Of that the holder hears at the next renewal.
//   - The clocks of two machines are never compared, and need not agree. What a store promised is counted on
//     this machine's clocks from before the request was sent, less what the clocks' rates may differ
//     ([WithDrift]). Two clocks are asked, one that counts the time a machine sleeps and one that nobody
//     slews, and the lease is over when either says so.
//   - Every lease has a fencing token, higher than that of any earlier holder of its name.
//   - On a server, on etcd and in memory, waiters get a name in the order of their claims. In a database the waiters of
//     one keeper do; across processes the order depends on the database, and its package says which it is.
//   - What became of a request is never guessed. A claim without an answer is resolved: it becomes this
//     lease, or is taken back. A release is reported only if the store has confirmed it.
//   - A call ends with its context. A wait that is broken off leaves nobody in line: what may have reached
//     the store is released by the keeper. No goroutine outlives [Keeper.Close].
//
// # What is not promised
//
// A process that is not running acts late. Any program can be paused between any two of its instructions: by
// the scheduler, a debugger, a garbage collection, with its virtual machine. Its lease may meanwhile end and
// go to somebody else, and when it goes on it has not heard of it. No lock service can prevent that from
// outside. So:
//
//   - Send [Lease.Token] along with every write, and let the resource refuse a token smaller than the
//     greatest it has seen. Package fence does that for many resources.
//   - Where that cannot be done, ask [Lease.Check] just before the act, and give the act a time limit well
//     below [Lease.Remaining]. That makes the window small; it does not close it.
//
// A machine that was cloned with its memory, or frozen so that neither of its clocks saw it, breaks what is
// taken for granted about clocks.
//
// # How it is used
//
// [Keeper.Run] is for a thing that has an end: it waits for the name, runs a function, and releases.
// [Keeper.Campaign] is for a role: it does so again and again. [Keeper.Acquire] and [Keeper.TryAcquire] return
// the [Lease] itself. [Keeper.Get], [Keeper.List] and [Keeper.Watch] tell who holds what, and [Lease.Announce]
// tells others how to reach the holder. [Keeper.Resume] takes over a lease whose token somebody handed over.
//
// One keeper is enough for a program. However many leases it holds, it renews all of them with one message
// every third of the TTL; a lease costs some 600 bytes. A lease that cannot be renewed is in doubt after
// half of its time, and other ways to the store are tried long before its end.
//
// Names are paths such as jobs/nightly-backup, of printable UTF-8. They do not nest: who holds jobs/nightly
// does not hold jobs, nor jobs/nightly/eu.
//
// Errors are told apart with [errors.Is]; their kinds are the variables below. [HeldError] says who holds a
// name. What a store cannot do is an [UnsupportedError].
//
// # How it works
//
// When to renew, what an answer is worth, and when a lease is lost is decided by a state machine without
// goroutines or clocks (internal/keepalive). This package only carries that out: one goroutine per keeper watches
// the time, one writes the log if there is one, each message of renewals has one, and each release; nothing
// else runs. Stores are behind the interfaces of package driver.
//
// It never reads the environment, flags or files, never logs unless it is given a logger ([WithLogger]), and
// never shows the password of a URL.
package leasekeeper
