// Package replica is one member of a Raft group that keeps leases and keys.
//
// It promises that what it acknowledged survives: a reply leaves only after the change behind it is on
// stable storage on a majority and applied here, and a member that restarts from what was synced shows
// exactly that. An acknowledged renewal is not undercut by a later primary, and a stale command (of an
// older term, or for an older granting of a lease id) changes nothing.
//
// How it works: a [Replica] is one function, Step(now, events) → effects, composed of raft's RawNode, the
// lessor and the keyspace, and beside it Answer, a short way to answers that need only memory, which goes on
// the goroutine of who asks. It owns no goroutine, reads no clock and never waits; the events and effects
// are in event.go. Two drivers call it: [Node] with this machine's clocks and disk, and the tests with
// clocks moved by hand and a disk that crashes. Requests that arrive while a write is being synced are
// gathered into the next log entry, so one sync carries many commands (group commit), and that entry is on its
// way to the disk before the one before it is applied. A read needs no log entry: Step says when it may happen and at which revision, and the caller's goroutine reads a
// snapshot of the keyspace there.
//
// Log and state share one Pebble database. Entries are written by one synced batch; the state that
// applying them produces follows unsynced in the same write-ahead log, so that after a crash it is a prefix
// of what had been applied, and the rest is applied again from the log. That order also makes truncating
// the log safe: a truncation that survived a crash stands behind the state that replaces what it removed.
//
// Names (names*.go, claim*.go) are held by leases. Who stands in line for one follows from keys: after every
// command notice looks at what it changed, however that came about, and hands the name on. What is
// remembered of the past of a name is a record beside the keys.
//
// A member that becomes leader applies the first entry of its own term, begins a reign in the lessor with
// it, promotes the lessor, and only then serves.
//
// It never compares clocks of two machines, never decides on the log's content by local configuration
// (ids, TTLs and limits are settled before a command is proposed), and never reports a command as failed
// whose outcome it does not know.
package replica
