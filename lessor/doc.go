// Package lessor owns leases with a TTL and the items attached to them: it grants, renews, checkpoints and
// ends them.
//
// # What it promises
//
//   - A renewal that may be acknowledged is never undercut: neither this primary nor any successor that has
//     applied the log up to the acknowledgement ends the lease before its TTL has passed on its own clocks,
//     counted from the renewal (on the primary) or from later (on a successor). The caller does its part by
//     acknowledging only while it has the authority to, and after [ErrClearing] only when Clear reports true.
//   - The primary decides an end at the first Due after both of its clocks are strictly past the deadline,
//     and never before: no rounding, no rate limit but the size of a batch.
//   - Overstay is bounded. A holder that falls silent keeps its lease beyond its TTL for at most the
//     [SilenceThreshold], plus the first leaderless time, plus any leaderless time at or after that end,
//     plus the time it takes to replicate a command. Nobody can end a lease while there is no primary.
//     A leaderless time between the first and that end adds nothing, however many there are. Two things
//     add to it: members whose clocks start from zero, because they rebooted, count what they had counted once
//     more; and the extension given to Promote, which is never passed on.
//   - A command that arrives late, twice, in another term, or for another granting of the same id, has no
//     effect. All members that apply one log agree on what each command came to.
//   - A bare lease costs some 150 bytes, and 200 at most.
//
// # How it works
//
// [Lessor] is a pure state machine. Every member applies the replicated commands Grant, Revoke, Expire,
// Checkpoint, Clear and BeginLeadership at the same positions of the log. On one of them, the primary, each
// lease has a deadline besides. Renew moves the deadline in memory and is no command; Due decides what the
// time has come for, NextDue tells when to ask again. Time comes in as an argument and is a clock.Instant,
// a pair of readings.
//
// The queue. On a primary each lease has exactly one entry: in a heap keyed on the raw clock, then, once
// that is past, in a heap keyed on the boot clock, and, once its expiry is on the way, among those that are
// expiring. A key is a lower bound, put right when the entry surfaces, so renewing is constant work, and both
// clocks are monotonic, so nothing is ever late. Checkpoints are waited for by the same entry. A lease
// that ends takes its entry with it.
//
// Checkpoints. A lease is cleared, or it is checkpointed with a remaining time that each member counts from
// when it applied that. Only silence is replicated: when the primary has not heard of a lease for the
// SilenceThreshold, and again at each half of what is left while that is a second or more. A leader's first
// entry (BeginLeadership) is a checkpoint of all leases with their full TTL, in constant time: a lease remembers
// where it was last cleared, members remember when they applied each leadership's first entry. A successor gives
// a checkpointed lease what was left, counted from when it applied the checkpoint itself. So it is never early, and it
// is late by as much as the successor applied the checkpoint late.
//
// Clearing. From the moment a checkpoint or an expiry is handed out until a "cleared" is applied behind it
// in the log, a renewal of that lease waits for such a clear. That also holds if the proposal is reported
// as dropped, so nobody needs to know for certain whether it made it. A clear voids all that was decided
// about the lease before it, in whatever order it is applied, by the DecidedAt of the command; while one is
// on its way nothing is checkpointed, and the renewals of one lease share it. An expiry decided before a
// clear is skipped, and the lease goes on.
//
// Holding. A pinned lease does not expire; after Unpin it has its full TTL again. A lease whose renewal is refused is renewed no more,
// and ends when what its holder was promised has. Both are replicated commands.
//
// Departure from the pattern. Fowler's Time-Bound Lease, like etcd's lessor, refreshes all leases when a
// new leader takes over, so frequent elections keep the leases of the dead alive for ever. Here a lease is
// refreshed once, by the first election after it was last cleared; the deadline goes on from there. The
// model of time is that of C. Gray and D. Cheriton, "Leases" (SOSP 1989).
//
// # What it never does
//
// It never reads a clock, starts a goroutine, takes a lock, logs, draws a random number, or lets the order
// of a map reach an output; the one exception is driver.go, which does the first three for programs that
// want the classic interface. It never clamps or chooses what was to be decided before a command was
// proposed. It does not store anything: [Record] and [Leadership] are what the caller stores.
//
// # The classic interface
//
// The interface of etcd's lessor is [Interface]; [Driver] implements it. On [Lessor] its methods became:
//
//	Grant(id, ttl)          Grant(id, ttl, at, now): at is the generation and guards against stale
//	                        commands; ErrExists comes with the lease, for retried requests
//	Revoke(id)              Revoke(id): returns what was ended, for watchers and metrics
//	                        Expire(expiry, term): new; what a timer decided is conditional, an order is not
//	Checkpoint(id, left)    Checkpoint(checkpoint, term, now), and Clear for left = 0: conditional as well;
//	                        each member counts from now
//	Renew(id)               Renew(id, now): says whether to acknowledge now, later, or not yet known;
//	                        never blocks
//	Promote(extend)         BeginLeadership(at, now) on all members, then Promote(extend, now, term) on one
//	Demote()                the same
//	Attach, Detach          the same
//	GetLease(item)          the same
//	Lookup(id), Leases()    the same, but copies: nobody else can change a lease
//	ExpiredLeasesC()        Due(now, applied) and NextDue(now): the caller's loop decides when;
//	                        ExpiryDropped and its like take back what was not proposed
//	SetRangeDeleter(rd)     the same; a transaction may be a LeaseEnder
//	SetCheckpointer(cp)     the same; called from Due with many leases at once
//	Pin, Unpin, RefuseRenewal   new
//	Recover(backend, rd)    Recover(records, leaderships), from what Record and Leaderships returned
//	Stop()                  nothing runs, so there is nothing to stop
//
// # Defects of etcd's lessor that it was built to avoid
//
//   - Every leader change gives every lease its full TTL again: #9395, #9888, #13294.
//   - A deposed leader's revocation ends a lease that was renewed elsewhere, because the command names
//     only the id: #12528, #15247. Here it names generation, term and position.
//   - A renewal is acknowledged while the lease's keys are being deleted: #14758. Here a lease is expiring
//     before its expiry is proposed, and gone from everything before the store hears of it.
//   - Checkpoints reach only leases of more than five minutes, were lost in a restart (#13491), pile up
//     in the queue, and can be applied behind a renewal that was acknowledged.
//   - Leases that end together are spread out to limit the rate, without bound: #9496, #12105.
//   - A renewal of an overdue lease blocks, and with it those behind it on the stream.
//   - Negative ids were lost in recovery: #12535. Keys were deleted in no fixed order: #6558.
//   - Minimum TTLs were applied by each member from its own configuration.
//   - The map of items leaked: #10673, #16053.
package lessor
