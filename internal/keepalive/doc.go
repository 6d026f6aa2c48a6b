// Package keepalive decides how long a client may act under its leases, and when it renews them.
//
// # What it promises
//
//   - [Renewer.Valid] is true only while the store has promised the name to this lease.
//   - The deadline of a lease is the instant before the first send of the claim or renewal that the store acknowledged,
//     plus the time for which a client can rely on the granted TTL ([clock.Drift.RelyRemote]). Nothing else moves it: not
//     the arrival of the answer, not a retry, not the news that a queued claim was granted, not a late answer. If the
//     backend computed the end on this process's own clocks, the Renewer uses that end unchanged.
//   - A lease is valid while both clocks are before its deadline. The caller passes the time, so no timer, answer or
//     I/O can delay the end. Once Valid has returned false for a lease, it never returns true again.
//   - A lease that was held is reported [Lost] exactly once, unless it was released. A claim of unknown outcome gives
//     no right to act. The right ends when the release begins, and no unconfirmed release is reported as a release.
//   - The Renewer forgets no lease: it renews each lease that is held or queued, or reports it lost at its deadline.
//   - An idle client sends one message per third of the shortest TTL, however many leases it has and whenever it
//     acquired them. A lease whose renewals fail is sent at most 64 times in one TTL.
//   - A store that answers every renewal after 0.45 of the TTL loses no lease. An attempt goes on until it is answered,
//     it fails, a younger attempt is acknowledged, or the lease has ended. The Renewer waits for at most two attempts
//     for each lease; an older one goes on only in a message in which other leases still wait.
//   - A lease costs about a hundred bytes.
//
// # How it works
//
// [Renewer] is a pure state machine for all leases of one keeper, because one message renews them all.
// [Renewer.Claim] makes a handle. [Renewer.Step] then takes what happened ([Event]) and returns what the driver
// must do ([Effect]). The driver passes the time as an argument, and reads it after it took the event from its queue.
// The deadlines of a [Renew] count from the instant of the Step that returned it, so this instant lies before the send.
//
// Numbers. Every message of renewals has its own number, and so has a retry. An answer repeats the number of the message
// that it answers. The newest acknowledged number decides the deadline, even if the store shortened the TTL and the
// deadline becomes earlier. Answers to older numbers change nothing.
//
// Schedule. The Renewer renews a lease when a third of its length has passed since the last acknowledged send, or up to
// an eighth of that third earlier: each seed has its own offset. A message also renews every lease that would be due
// before the next message. So leases that were acquired at different moments soon share messages. A lease whose renewals
// fail takes no others along: it shares messages with leases that wait about equally long for an answer.
//
// Faults. An attempt that stays unanswered for a third of the time left is overdue. It goes on, and the Renewer sends a
// hedge alongside it over another endpoint ([Renew.Hedge]). If the store is slow, the first attempt is answered in time;
// if the connection is dead, the hedge is. A hedge is overdue after half of the time left, and is then replaced by
// another ([Abandon]). A store with only one endpoint gets no hedges ([Config.NoHedge]). An attempt that failed at once
// is repeated after an eighth of the time left. Halfway to its deadline a lease is in [Doubt]: this is a report and
// changes nothing.
//
// Retirement. A driver that wants a lease to end by itself sends [Retire]: the lease stays valid until its deadline, and is
// not renewed again.
//
// The queue. A lease has one entry. Its key is a reading of a clock that advances, in every step, as far as the faster of
// the two clocks. The key is a lower bound of the moment at which either clock reaches the lease's next instant. When an
// entry surfaces, the Renewer compares the instants themselves.
//
// Rule T5 does not hold here. A server that was paused first applies the renewals that were waiting, and then decides
// which leases have expired. A client cannot do that: if its deadline passed while an answer was waiting, the lease is
// lost, because its user may have checked the lease in between and found it invalid.
//
// Codes such as T5, C1 and G2 are rules of docs/design/time-and-identity.md.
//
// # What it never does
//
// It never reads a clock, starts a goroutine or a timer, takes a lock, or draws a random number. It never talks to a
// store, and reports a lease as ended by the store only if an event says so. It does not know names, tokens or holders:
// its driver keeps these under [Lease.Slot]. It does not release leases: after [Lost] the store may keep the name until
// the TTL has passed, so a driver should release it. It is not safe for concurrent use.
//
// It assumes that a store keeps what it has acknowledged: a renewal with a shorter TTL must not end an earlier, longer
// promise before the client can have read the answer.
package keepalive
