// Package keyspace is the multi-version key-value state of the lease server:
// every put and delete has a revision, every revision since the last
// compaction can be read, and watchers are told of each change once, in order.
//
// # What it promises
//
// Revisions rise by one with each write request that changes something. A
// read at a revision gives the same answer whenever and on whichever member
// it is made, until that revision is compacted. A request that fails has
// changed nothing. Ending a lease deletes all its keys at one revision, which
// every reader and watcher sees at once and whole. A watcher gets every event
// of its interval from its start revision on, in order of revision, once.
//
// # How it works
//
// The state is a few families of keys in a Pebble database that belongs to
// the caller, who may keep other things beside it under other first bytes:
//
//	'v' key ^revision    one version of a key: a value or a tombstone
//	'h' revision sub     events: put or delete of which key; the last is at that revision
//	'e' generation       a lease that ended and is not swept yet
//	'm' name             the current, the compact and the trimmed revision
//
// All writing goes through a Writer into the caller's batch, on one
// goroutine; the caller commits the batch together with whatever else it put
// there and then calls Commit, which makes the new revision known to readers.
// Readers are any number of goroutines, each on a snapshot of its own.
//
// What a Writer does one after the other makes few records of events, of some
// kilobytes each, for it is as much work to write a small record as a large
// one. Which events share a record is not the same on every member.
//
// Ending a lease with a million keys must not hold up the rest. So EndLease
// writes a single 'e' record which says that a generation (one granting of a
// lease id) ended at revision R. From R on a key whose newest version carries
// that generation reads as deleted at R. Its tombstone and its 'h' entry are
// written later by Sweep in bounded steps; the step that writes the last of
// them removes the 'e' record. One with a key or two is spared all that: its
// tombstones are written at once, which is less to write. Whether, when and in what portions Sweep runs
// can't be seen through any read; members of a cluster need not agree on it.
//
// Compaction too is visible at once; Trim removes what it left in steps, once
// the leases that ended before are swept.
//
// The whole state can be replaced by a later one of the same key space, which
// the caller brings from elsewhere (Suspend, Reload). All who hold the Store or
// its Hub go on with the new one; no read ever sees a mix of the two.
//
// A Hub hands the changes of each commit to the watchers they concern. What a
// slow watcher has no room for it reads from the 'h' family later, on the
// goroutine of its own reader; watchers that read the same share one read.
//
// Readers of many keys, and of history, take turns by client (Turns, InTurn,
// TakeTurn), so that bulk reads leave processors to everything else.
//
// # What it never does
//
// It knows nothing of Raft, gRPC or time, starts no goroutine, and commits no
// batch. It never panics over what it reads from the disk: a record that
// makes no sense is a *CorruptError. Errors of Pebble are returned as they
// are; after one, or after a batch was not committed, the Store is to be
// given up and opened again.
package keyspace
