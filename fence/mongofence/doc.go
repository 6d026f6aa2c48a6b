// Package mongofence refuses stale writes in a MongoDB database, in the update or the transaction that writes.
//
// # What it promises
//
// Once a newer token has written a document with [Field.Update], or raised its token with [Field.Advance], no
// older token changes it. Transactions of one name that begin with [Marks.Guard] commit in the order of their
// tokens, and no newer transaction comes between the check and the commit of another. The server makes the
// check and the write one step, so it does not matter where a program is paused.
//
// A write returns only when the journals of a majority have it, whatever write concern the given collection
// has: if a failover lost a token, an old holder could write again. In a transaction the concern of the
// transaction counts, so set it to "majority".
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
// writes to it in the caller's transaction. A [fence.Guard] can also save its marks there.
//
// Field and Marks are tested on FerretDB. Guard needs transactions, and its test runs only where there is a
// replica set of MongoDB.
//
// # What it never does
//
// It begins no transaction, and ends none. It does not protect documents against updates that do not go through
// it. It does not protect a document that was deleted, because its token was deleted with it: if documents come
// and go, use Marks.
package mongofence
