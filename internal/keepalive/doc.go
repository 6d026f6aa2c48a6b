// Package keepalive is a client's right to act under its leases: when it begins, how it is kept, and when it is over.
//
// # What it promises
//
//   - [Renewer.Valid] is true only while the store has promised the name to this lease. A deadline is the
//     instant before the first send of the request or the renewal that was acknowledged, and from there what
//     the granted TTL is worth on this machine's clocks ([clock.Drift.RelyRemote]). Nothing else moves it: not
//     the answer's arrival, not a retry, not "yours", not an answer that comes late. An end that the backend
//     counted on this process's own clocks is relied on as it is.
//   - It is valid while both clocks are before the deadline, and the caller brings the time: no timer, no
//     answer and no I/O under way stands between the right and its end. Once it was false it stays false.
//   - A right that began is lost exactly once ([Lost]), unless it was given back, and never comes back. A
//     claim whose outcome is not known gives no right. The right ends when the release begins, and a release
//     that was not confirmed is never called one.
//   - No lease is forgotten: each that holds a name or stands in line is renewed, or lost at its deadline.
//   - An idle holder sends one message per third of the shortest TTL, however many leases it has and whenever
//     they were acquired. In trouble no lease is sent more often than 64 times in one length of its TTL.
//   - A store that answers every renewal after 0.45 of the TTL loses no lease: an attempt goes on until it is answered,
//     it fails, a younger one is acknowledged, or the lease has ended. At most two attempts for a lease are waited
//     for; an older one goes on only in a message that other leases still wait for.
//   - A lease costs about a hundred bytes.
//
// # How it works
//
// [Renewer] is a pure state machine for all leases of one keeper, because they are renewed in one message.
// [Renewer.Claim] makes a handle, then [Renewer.Step] takes what has happened ([Event]) and returns what is to
// be done ([Effect]). Time comes in as an argument and is read after the event left its queue; the instant
// of the Step that returned a [Renew] is the one its renewals are counted from, so it lies before the send.
//
// Numbers. Every message of renewals has a number of its own, a retry as well, and an answer belongs to the
// number it repeats. The newest number that was acknowledged decides the deadline, even if that makes it
// earlier because the store shortened the TTL; answers to older numbers change nothing.
//
// Rhythm. A lease is renewed when a third of its length has passed since the last acknowledged send, or up
// to an eighth of that earlier, differently for each seed. A message takes along every lease that would be
// due before the next one, and that is what draws leases together which were acquired at different moments.
// A lease in trouble draws no others, and is sent with those that have as much patience as itself.
//
// Trouble. An attempt that stays unanswered for a third of what was left is overdue. It goes on, and a hedge is sent
// alongside it over another endpoint ([Renew.Hedge]): if the store is slow the first is answered in time, and if the
// connection is dead the second is. A hedge that is overdue itself, after half of what was left, makes room for another
// ([Abandon]). Where the store has only one way in there are no hedges ([Config.NoHedge]). One that failed at once is repeated after an eighth of what is left. Halfway to its deadline a lease is in
// [Doubt], which is a report and changes nothing.
//
// The queue. A lease has one entry, keyed on the progress of a clock that is as fast as the faster of the
// two in every step: a lower bound of the moment at which either has reached the lease's next instant. What
// surfaces is judged by the instants themselves.
//
// Departure from T5 of the server's rules. A server that finds itself having been paused first takes in the
// renewals that were waiting and then decides ends. A holder whose deadline has passed while an answer was
// waiting has lost its lease: somebody may have asked in between and have been told so.
//
// # What it never does
//
// It never reads a clock, starts a goroutine or a timer, takes a lock, or draws a random number. It never
// talks to a store, and believes that a lease is gone only if it is told so. It does not know names, tokens
// or holders: its driver keeps these alongside the handle ([Lease.Slot]). It does not give leases back
// by itself: after [Lost] the store may still keep the name until the TTL is over, and a driver does well to
// release it. It is not safe for concurrent use.
//
// It takes for granted that a store keeps what it has acknowledged: a renewal with a shorter TTL does not end
// what an earlier, longer one has promised before its answer could be read here.
package keepalive
