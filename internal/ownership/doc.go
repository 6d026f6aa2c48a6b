// Package ownership decides who owns a name, who waits for it and in which order, and why a tenure ended.
//
// # What it promises
//
//   - At every revision at most one lease owns a name, and each owner's token is higher than all earlier ones of that
//     name, also after the name was forgotten.
//   - A name goes to the first waiter in the same revision in which the previous tenure ends.
//   - A repeated claim makes no second lease, and a claim that arrives after its own end takes nothing, as long as the
//     registry remembers that end.
//   - A pinned name stays with its owner, and a revoked owner keeps the name for as long as it was promised.
//   - All members that apply one log have the same owners, queues, pasts and forgotten names.
//
// # How it works
//
// [Registry] is a pure state machine. A lease that wants a name has a key NAME/LEASE, with its id in hexadecimal
// ([Key]), attached to that very lease. Such a key is a waiter. Of a name's waiters the one with the lowest create
// revision owns the name, and that revision is the fencing token.
//
// The owner follows from the keys. The caller reports each change of a key ([Registry.KeyPut], [Registry.KeyDeleted]),
// and after all changes of one revision calls [Registry.UpdateOwners], which compares the head of each queue with the
// owner, ends the old tenure and begins the new one. It makes no difference whether a claim, a release, an expiry or
// a client of etcd's API changed the key.
//
// Commands are [Claim], [Release], [Revoke], [Transfer], [Pin] and [Unpin]. Those that change keys only decide, and
// the caller carries out the rest: it grants the lease and creates the key of a claim, and it ends a lease. The
// changed keys come back to UpdateOwners.
//
// Time, the lease records and what is stored come in as an argument, [View] or [Env]. What has to be stored or
// published goes out as [Effects]. The registry keeps in memory who owns and who waits, and what it needs of the past
// to decide; cards of owners are read from the store once they are no longer in memory.
//
// # Bounds
//
// Of each name the store keeps the last [MaxPast] tenures, and of names without an owner those that became free last.
// These bounds are part of the replicated state. The claims that ended recently are in the memory of one member, and
// only shape its answers.
//
// # Several owners
//
// A name has one owner today. Names with shared or several owners keep the queue as it is: the owners are then the
// first waiters that fit. Only queue.advance and UpdateOwners decide who owns, and only [State] and [Record] say
// that it is one.
//
// # What it never does
//
// It never reads a clock, starts a goroutine, takes a lock, logs, draws a random number, writes anything, or lets the
// order of a map reach an output. It knows neither keyspace nor log, and never chooses an id or a TTL.
package ownership
