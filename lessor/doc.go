// Package lessor owns leases with a TTL and the items attached to them. It grants, renews, checkpoints and
// ends leases.
//
// Codes such as T5, C4 and G1 are rules of docs/design/time-and-identity.md. Codes such as P3 are promises
// of docs/guarantees.md. docs/design/lessor.md explains the design.
//
// # What it promises
//
//   - No lessor undercuts a renewal that may be acknowledged. The primary ends the lease only after its TTL
//     has passed on the primary's clocks, counted from the renewal. The same holds for a successor that has
//     applied the log up to the acknowledgement: it counts the TTL by its own clocks, from the renewal or
//     later. The caller must do its part. It acknowledges only while it has the authority to, and after
//     [ErrClearing] only once Clear reports true.
//   - The primary decides an end at the first Due after both of its clocks are strictly past the deadline,
//     and never before. Nothing delays the decision but the batch size: the lessor neither rounds times nor
//     limits the rate.
//   - Overstay is bounded. A silent holder keeps its lease beyond its TTL for at most the [SilenceThreshold]
//     and the first leaderless time. Add the time to replicate a command. Add any leaderless time at or
//     after that end, because no member can end a lease while there is no primary. Leaderless times in
//     between add nothing, however many there are. Two more things add to the bound. A member that reboots
//     starts its clocks at zero, and counts again from there. Promote may extend all deadlines once.
//   - A command has no effect if it arrives late, twice, in another term, or for another grant of the same
//     id. All members that apply one log agree on the result of each command.
//   - A lease without items costs about 150 bytes, and at most 200.
//
// # How it works
//
// [Lessor] is a pure state machine. Every member applies the replicated commands Grant, Revoke, Expire,
// Checkpoint, Clear, BeginLeadership, Pin, Unpin, RefuseRenewal and Retain at the same positions of the log. One
// member is the primary; only there does each lease have a deadline. Renew moves the deadline in memory and
// is not a command. Due decides which leases expire or need a checkpoint. NextDue returns when to call Due
// again. Time is an argument: a clock.Instant, which is a pair of readings.
//
// The queue. On a primary each lease has exactly one queue entry. The entry waits in a heap ordered by the
// raw clock first. Once the raw clock is past, the entry waits in a heap ordered by the boot clock. Once the
// primary has decided that the lease expires, the entry moves to the queue of expiring leases. The key of an
// entry is a lower bound of the time it waits for. The primary corrects the key when the entry reaches the
// head of its heap, so a renewal takes constant time. Both clocks are monotonic, so no entry is late. The
// same entry waits for checkpoints. A lease that ends takes its entry with it.
//
// Checkpoints. A lease is either cleared or checkpointed. A checkpoint holds a remaining time; each member
// counts it from the moment that the member applies the checkpoint. The lessor replicates only silence: the
// primary checkpoints a lease when it has heard no renewal for the SilenceThreshold. It checkpoints the lease
// again at each half of the remaining time, while that is a second or more. A leader's first entry
// (BeginLeadership) is a checkpoint of all leases with their full TTL, in constant time: each lease remembers
// the position where it was last cleared, and each member remembers when it applied the first entry of each
// leadership. A successor gives a checkpointed lease its remaining time, counted from when the successor
// applied the checkpoint. So the end is never early. It is late by no more than the successor was late in
// applying the checkpoint.
//
// Clearing. Once the primary hands out a checkpoint or an expiry of a lease, a renewal of that lease must
// wait for a clear. The clear must be applied behind the checkpoint or expiry in the log. This also holds if the proposal is reported as
// dropped, so the caller need not know for certain whether the proposal reached the log. A clear voids
// everything decided about the lease before it, in whatever order the log has the commands: each command
// carries the position DecidedAt. While a clear is on its way, the primary makes no checkpoint of the lease,
// and all renewals of the lease share the clear. Members skip an expiry that was decided before a clear, and
// the lease continues.
//
// Pins and refusals. Pin, Unpin, RefuseRenewal and Retain are replicated commands. A pinned lease does not expire;
// Unpin gives it its full TTL again. A lease whose renewal is refused is no longer renewed. It ends when the
// time promised to its holder has passed. Retain refuses renewals too, and gives the lease another TTL, because its
// holder has finished and wants it to last for so long.
//
// Departure from the pattern. Fowler's Time-Bound Lease and etcd's lessor refresh all leases when a new
// leader takes over, so frequent elections keep the leases of dead holders alive for ever. This lessor
// refreshes a lease only at the first election after the lease was last cleared. Later leaders keep that
// deadline. The model of time is that of C. Gray and D. Cheriton, "Leases" (SOSP 1989).
//
// # What it never does
//
// Lessor never reads a clock, starts a goroutine, takes a lock, logs, or draws a random number. The order of
// a Go map never reaches an output. Driver (driver.go) is the exception: it reads the clock, runs a
// goroutine and takes a lock, for programs that want the classic interface. Lessor never adjusts a value
// that had to be decided before a command was proposed. It stores nothing: the caller stores [Record] and
// [Leadership].
//
// # The classic interface
//
// [Interface] is the interface of etcd's lessor, and [Driver] implements it. On [Lessor] its methods became:
//
//	Grant(id, ttl)          Grant(id, ttl, at, now): at is the generation and guards against stale
//	                        commands; ErrExists comes with the lease, for retried requests
//	Revoke(id)              Revoke(id): returns the ended lease, for watchers and metrics
//	                        Expire(expiry, term): new; an expiry is conditional, a revocation is not
//	Checkpoint(id, left)    Checkpoint(checkpoint, term, now), and Clear for left = 0: both conditional;
//	                        each member counts from now
//	Renew(id)               Renew(id, now): returns whether to acknowledge now, later, or not yet known;
//	                        never blocks
//	Promote(extend)         BeginLeadership(at, now) on all members, then Promote(extend, now, term) on one
//	Demote()                the same
//	Attach, Detach          the same
//	GetLease(item)          the same
//	Lookup(id), Leases()    the same, but they return copies: callers cannot change a lease
//	ExpiredLeasesC()        Due(now, applied) and NextDue(now), called from the caller's loop;
//	                        ExpiryDropped and its like return what was not proposed
//	SetRangeDeleter(rd)     the same; a transaction may be a LeaseEnder
//	SetCheckpointer(cp)     the same; Due calls it with many leases at once
//	Pin, Unpin, RefuseRenewal, Retain   new
//	Recover(backend, rd)    Recover(records, leaderships), from the results of Record and Leaderships
//	Stop()                  not needed: nothing runs
//
// # Defects of etcd's lessor that this one avoids
//
//   - Every leader change gives every lease its full TTL again: #9395, #9888, #13294.
//   - A deposed leader's revocation ends a lease that was renewed elsewhere, because the command names
//     only the id: #12528, #15247. Here an expiry names generation, term and position.
//   - A renewal is acknowledged while the lease's keys are being deleted: #14758. Here the lease is marked
//     as expiring before its expiry is proposed, and it is removed before the store deletes its keys.
//   - Checkpoints reach only leases of more than five minutes, and were lost in a restart (#13491). They
//     pile up in the queue, and can be applied behind a renewal that was acknowledged.
//   - Leases that end together are spread out to limit the rate, without bound: #9496, #12105.
//   - A renewal of an overdue lease blocks, and with it the requests behind it on the stream.
//   - Negative ids were lost in recovery: #12535. Keys were deleted in no fixed order: #6558.
//   - Each member applied the minimum TTL of its own configuration.
//   - The map of items leaked: #10673, #16053.
package lessor
