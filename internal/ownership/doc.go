// Package ownership decides who owns a name, who waits for it and in which order, and why a tenure ended.
//
// # What it promises
//
//   - At every revision at most one lease owns a name. Each owner's token is higher than all earlier tokens of that
//     name, even after the name was forgotten.
//   - A name goes to the first waiter in the same revision in which the previous tenure ends.
//   - A repeated claim makes no second lease. A claim that arrives after its own end takes nothing, as long as the
//     registry remembers that end.
//   - A pinned name stays with its owner, and a revoked owner keeps the name for as long as it was promised, or until
//     it finishes.
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
// Commands are [Claim], [Release], [Revoke], [Transfer], [Finish], [RaiseMark], [Prefer], [Pin] and [Unpin]. Those that
// change keys only decide, and the caller carries out the rest: it grants the lease and creates the key of a claim, it ends a
// lease, and it keeps the marks of names. The changed keys come back to UpdateOwners.
//
// A claim with a priority, and a [Prefer], change the order of those who wait: the claims that are overtaken lose their
// keys and get them again at later revisions ([Registry.Requeue]). So tokens keep growing.
//
// A [Finish] that holds the name on leaves the owner its key and its lease, but not its tenure's rights: the lease is
// not renewed, and raises no mark. The tenure is stored as finished, and a repeated Finish is recognized by that.
//
// The registry keeps the user that made a claim ([Claim].Creator), and decides nothing by it.
//
// Time, the lease records and stored data come in as an argument, [View] or [Env]. Data to store or publish goes out
// as [Effects]. The registry keeps in memory the owners, the waiters, and the part of the past that it needs to
// decide. It reads an owner's card from the store if the card is not in memory.
//
// # Bounds
//
// The store keeps the last [MaxPast] tenures of each name, and the names without an owner that became free last.
// These bounds are part of the replicated state. The recently ended claims are only in the memory of one member, and
// only affect its answers.
//
// # Several owners
//
// A name has one owner today. Names with shared or several owners could keep the queue as it is: the owners would
// then be the first waiters that fit. Only queue.advance and UpdateOwners decide about the owner, and only [State]
// and [Record] have room for a single one.
//
// # What it never does
//
// It never reads a clock, starts a goroutine, takes a lock, logs, draws a random number, writes anything, or lets the
// order of a map reach an output. It knows neither keyspace nor log, and never chooses an id or a TTL.
package ownership
