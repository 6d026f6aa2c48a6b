// Package claim makes leases on any store that can conditionally write one record: a table, a collection.
//
// It needs no server of its own, and no clocks that are set alike. It promises:
//
//   - A holder may rely on its lease until [Lease.Until], which its process counts on its own clocks. No other
//     client gets the name before that, with two exceptions. An operator may end the tenure at once
//     ([Client.Revoke] with now). Another process may resume the tenure ([Client.Resume]) and release it, which
//     frees the name at once; the handle from before the resumption may still act until its own deadline.
//   - Tokens rise by one with every change of ownership, for ever: over release, expiry, takeover and the
//     removal of old records. A lost lease never comes back.
//   - A renewal never shortens an earlier promise.
//   - A refusal never rests on an old read, and success is only reported for a write that certainly happened.
//     Any other outcome is [backend.ErrUnknownOutcome], and stays so until it is settled.
//   - A mark, the highest completed tick of a name, is raised only by the holder of the name and never falls, unless
//     a person replaces it ([Client.ReplaceMark]).
//   - A record that cannot be read affects its own name alone.
//
// It does not promise that a name is free as soon as its lease has expired: a client has to ask for it. A
// client that has just read the record for the first time waits for at most the length of the lease.
//
// # How it works
//
// There is one [Record] for each name. Every change of it is one conditional write: the record must still have
// the op, the random id of its last write, on which the decision was made. So of two writes that were decided
// on the same record, only one happens. However late a request arrives, it does nothing if another write came
// first. Release and expiry leave a tombstone, which keeps the token.
//
// No clock is compared with another machine's. The record says, on the pair of clocks of its writer, when it
// was written and until when the lease was promised. Every process of the same clock domain (one boot of one
// machine) judges by these instants directly: a lease has expired when both clocks are strictly past the
// expiry.
//
// In another domain only the difference between the two instants counts. The writer's clocks had reached the
// time of writing when the record was first read with its op. When that difference has passed since on both
// clocks here, stretched by the drift bound, the promise has passed there. The store keeps, for each domain,
// when an op was first seen. So processes that live shorter than a lease continue the count of earlier ones.
// Two things may show sooner that a promise has passed. A store that only one machine can reach knows that no
// process of an earlier boot is left ([Local]). The clock record of a domain shows how far its clocks are
// ([Clocks]). In store-clock mode ([Judge]) the clock of the database decides instead, within the write that
// takes the name, and a holder relies on a lease as it would on a server's.
//
// Each attempt to write has its own op, and its own time before it is sent. If its answer is lost, the record
// shows what became of it:
//
//   - If the record has the attempt's own op, the write happened.
//   - If it has the old op, the write may still happen. The next attempt replaces the same op, so only one of
//     them can happen.
//   - If it has any other op, the write will never happen.
//
// What is not settled when the attempts or the context end is reported as unknown, and the deadline stays where
// it was.
//
// The first writer of a name creates a vacant record before anything else. [Client.Collect], which an operator
// may call, first raises the floor of the namespace above all tokens that it removes. A claim takes a token
// above the floor that it reads with the record, or after it. Only one state can come back: that there is no
// record. A write that was sent because of that state creates a vacant record, on which no client relies.
// However late it arrives, the next token is still above the floor. One case remains: a network that executes
// requests twice. If it repeats both the creation of a record and the claim on it, and both only after a
// collection, that tenure exists again under its old token.
//
// [Client.RaiseMark] and [Client.Finish] record a completed tick in the mark, in one write with the check that the lease
// still holds its name; Finish releases the lease with it. It may leave the name held for a while, by a record that no
// client renews.
//
// An uncontended claim is one read and one write, and a renewal or a release is one write. The renewal of many
// leases is one statement if the store is a [Batcher]. If the store is [Bounded], a client claims a name that
// it released itself with the write alone. It decides from the record as it left it. The write happens only if
// nothing was written to the record since, and no floor was raised above the new token; otherwise the client
// reads and decides again. After a conflict it tries again, after a short random pause, for a limited number of
// times. Renewals retry longer and sooner than claims.
//
// A store that is a [Queuer] keeps a queue of processes for each name, so that they get it in turn. The queue
// is advisory: a ticket excludes no client, and nothing above depends on one.
//
// [Client] is all of that, for programs that keep time themselves. Package backend/claimed makes a
// [backend.Backend] of a client and its store, for the keepers of package leasekeeper. Package claimtest tests
// stores.
//
// # Where determinism ends
//
// A decision (the decide methods, Client.prolong, Client.tombstone, Client.verdict and what they call) depends on
// the record, on the client's memory and on [Options] alone. Time comes from Options.Clock and Options.Wall, and
// pauses go to Options.Pause, so tests run all of it in virtual time.
//
// The decisions are no package of their own, for two reasons. They take and return [Record], [Found] and [Swap], the
// public types of this package, which would have to move below it. And a claim asks the store in the middle of a
// decision (Client.fullVerdict), so a pure decision would have to be split in two, with the record read in between.
// Instead a test fails on any file that reads a clock, starts a goroutine or draws random numbers, except the four
// that have to (determinism_test.go). Transcripts, a property test against a model and the worlds of claimtest replay
// the decisions.
//
// # What it never does
//
//   - It never compares clocks of two domains, and never decides anything by the wall clock.
//   - It never deletes a record outside Collect and Move.
//   - It starts no goroutine that outlives a call of a Client.
//   - It imports no database.
//
// Codes such as B1 and S1 in the tests are defects of earlier packages, which docs/design/earlier-defects.md lists.
package claim
