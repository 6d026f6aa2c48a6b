// Package claim makes leases on any store that can conditionally write one record: a table, a collection.
//
// It promises, without a server of its own and without clocks that are set alike:
//
//   - A holder may rely on its lease until [Lease.Until], which its process counts on its own clocks. Nobody else is
//     given the name before, unless an operator says so ([Client.Revoke] with now), or somebody resumes the tenure
//     ([Client.Resume]) and then releases it: that frees the name at once, and the handle
//     from before the resumption may still act until its own deadline.
//   - Tokens rise by one with every change of ownership, for ever: over release, expiry, takeover and the removal
//     of old records. A lease that was lost never comes back.
//   - A renewal never shortens what was promised before it.
//   - Nobody is refused because of what was read some time ago, and success is only reported of a write that is
//     known to have happened. What is not known is [backend.ErrUnknownOutcome], and stays so until it is settled.
//   - A record that cannot be read harms its own name alone.
//
// It does not promise that a name is free as soon as its lease is over: somebody has to ask for it, and who has
// just begun to look has to wait for as long as the lease may last at the most.
//
// # How it works
//
// There is one [Record] for each name. All that happens to it is one write, on the condition that the record still
// has the op, the random id of its last write, which the decision was made on. So of any two writes that were
// decided on the same record one happens, and however late a request arrives, it does nothing once anything else
// has been written. Release and expiry leave a tombstone, which keeps the token.
//
// No clock is compared with another machine's. The record says, on the pair of clocks of its writer, when it was
// written and until when it was promised. Every process of the same clock domain (one boot of one machine) can
// judge by that directly: over is what is strictly past on both clocks. In another domain only the difference
// counts: the writer's clocks had reached the time of writing when the record was first seen with its op, and
// when that difference has passed since on both clocks here, stretched by what rates may differ, the promise has
// passed there. Since when an op was seen is kept in the store for each domain, so that processes which live
// shorter than a lease count on where others have begun. Two things may show sooner that a promise is over: a
// store that only one machine can reach knows that of another boot nobody is left ([Local]), and the clock record of
// a domain shows how far its clocks are ([Clocks]). In store-clock mode ([Judge]) the clock of the database
// decides instead, within the write that takes the name, and a holder relies on a lease as on that of a server.
//
// Each attempt to write has its own op and its own time before it is sent. If its answer is lost, the record says
// what became of it: its own op, then it has happened; the old op, then it may yet, and the next attempt is made
// from the same op, so that only one of them can; any other, then it never will. What was not settled when the
// patience or the context ends is reported as unknown, and the deadline stays where it was.
//
// The first writer of a name makes a vacant record before anything else. [Client.Collect], which an operator may
// call, first raises the floor of the namespace above all tokens that it removes; a claim takes a token above the
// floor that it reads with the record, or after it. That there is no record is the only state that can come
// back, and what was sent because of it writes nothing that anybody relies on: however late it arrives, the record
// that it makes is vacant, and the next token is above the floor nevertheless. What is left is a network that
// executes requests twice: if it does so with the making of a record and with the claim upon it, and with both only
// after a collection, that tenure is there again, under its old token.
//
// An uncontended claim is one read and one write, a renewal or a release one write, and the renewal of many one
// statement if the store is a [Batcher]. A name that this client has held and given back it claims with the write
// alone, if the store is [Bounded]: from how it left the record, on the condition that nobody has written to it since
// and that no floor was raised above the new token. If that is not so it reads and decides again. After a conflict
// it tries again, after a short and random time, for a limited number of times; renewals try longer and sooner than
// claims.
//
// A store that is a [Queuer] keeps a queue of processes for each name, so that they have it in turn. It is advisory: a
// ticket excludes nobody, and nothing above depends on one.
//
// [Client] is all that, for programs that count by themselves. Package backend/claimed makes a [backend.Backend] of a
// client and its store, for the keepers of package leasekeeper. Package claimtest tests stores.
//
// It never compares clocks of two domains, never decides anything by the wall clock, never deletes a record
// outside Collect and Move, starts no goroutine that outlives a call of a Client, and imports no database.
package claim
