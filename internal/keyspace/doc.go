// Package keyspace is the multi-version key-value state of the lease server. Every put and delete has a revision, and
// every revision since the last compaction can be read. Watchers receive each change once, in order.
//
// # What it promises
//
//   - Each write request that changes something raises the revision by one.
//   - A read at a revision returns the same result at any time and on every member, until the revision is compacted.
//   - A request that fails has changed nothing.
//   - The end of a lease deletes all its keys at one revision. Every reader and watcher sees all of these deletes or
//
// none.
//   - A watcher receives every event of its interval from its start revision on, once, in the order of revisions.
//
// # How it works
//
// The state is a few families of keys in a Pebble database that belongs to the caller. The caller may keep other data
// in the database under other first bytes.
//
//	'v' key ^revision    one version of a key: a value or a tombstone
//	'h' revision sub     events: put or delete of a key; the last event has this revision
//	'e' generation       a lease that ended and is not swept yet
//	'm' name             the current, the compact and the trimmed revision
//
// One goroutine writes, through a Writer, into the caller's batch. The caller commits the batch together with its
// other data and then calls Commit, which makes the new revision visible to readers. Any number of goroutines may
// read, each on a snapshot of its own.
//
// A Writer packs consecutive events into records of some kilobytes, because a small record costs as much to write as
// a large one. Members may pack the same events differently.
//
// # Leases with many keys
//
// The end of a lease with a million keys must not delay other requests. So EndLease writes a single 'e' record: it
// says that a generation (one granting of a lease ID) ended at revision R. From R on, a key whose newest version
// carries that generation reads as deleted at R.
//
// Sweep writes the tombstones and the 'h' records later, in bounded steps. The step that writes the last of them
// removes the 'e' record. For a lease with one or two keys EndLease writes the tombstones at once, because that is
// less to write. No read can observe whether, when and in what portions Sweep runs, and members need not agree on it.
//
// # Compaction, replacement, watchers
//
// Compaction is also visible at once. Trim then removes the compacted data in steps, after the leases that ended
// before are swept.
//
// The caller can replace the whole state by a later one of the same keyspace (Suspend, Reload). Holders of the Store
// or its Hub continue with the new state. No read ever sees a mix of the two.
//
// A Hub passes the changes of each commit to the watchers of the changed keys. A slow watcher without room for a
// change reads it later from the 'h' family, on its own reader's goroutine. Watchers that need the same part of the
// history share one read.
//
// Readers of many keys, and of history, take turns by client (Turns, InTurn, TakeTurn). So bulk reads leave processor
// time for everything else.
//
// # What it never does
//
// It knows nothing of Raft, gRPC or time, starts no goroutine, and commits no batch. It never panics because of data
// on the disk: an invalid record is a *CorruptError. It returns Pebble's errors unchanged. After such an error, or if
// a batch was not committed, the caller must discard the Store and open it again.
package keyspace
