// Package mongofence refuses stale writes in a MongoDB database, in the update or the transaction that writes.
//
// # What it promises
//
// A document that is written with [Field.Update] never holds what an older token wrote after a newer one did or
// called [Field.Advance]. A transaction that begins with [Marks.Guard] and commits was not older than any other
// that did so before it for the same name, and no newer one came between its check and its commit. The server
// makes the check and the write one step, so it does not matter where a program is paused.
//
// What was written is in the journals of a majority before it is believed, whatever concern the collection that
// is passed in has: a token that a failover takes back would let an old holder in. In a transaction it is the
// concern of the transaction that counts, so let that be "majority".
//
// A token above 9223372036854775807 does not fit BSON's integers and is refused with [fence.ErrInvalid].
//
// # How it works
//
// There are two forms. Where a document can have a field for the token, [Field] does
//
//	updateOne({_id: ..., token: {$lte: NumberLong(34)}}, {$set: ..., $max: {token: NumberLong(34)}})
//
// and, if that matched nothing, looks for the reason: a newer token, or no such document. Where the resource is
// several documents or none yet, [Marks] keeps one document for each name in a collection of its own, and Guard
// writes to it in the user's own transaction. A [fence.Guard] can save its marks there, too.
//
// Field and Marks are tested on FerretDB. Guard needs transactions, and its test runs only where there is a
// replica set of MongoDB.
//
// # What it never does
//
// It begins no transaction, and ends none. It does not protect documents against updates that do not go through
// it, nor one that was deleted, since its token went with it: if documents come and go, use Marks.
package mongofence
