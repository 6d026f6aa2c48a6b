// Package replica is one member of a Raft group that keeps leases and keys: the only one, or one of several.
//
// # What it promises
//
// What it acknowledged survives: a reply leaves only after the change behind it is on stable storage on a majority and
// applied here, and a member that restarts from what was synced shows exactly that. An acknowledged renewal is not
// undercut by a later primary, and a stale command (of an older term, or for an older granting of a lease id) changes
// nothing. A leader answers from memory only while it is certain that no other can be elected; where it is not, it asks
// a majority first, or says that it does not know. No answer of Step or Answer comes from a state older than what was
// committed when it was asked for; who reads [Replica.Store] without asking may see one.
//
// # How it works
//
// A [Replica] is one function, Step(now, events) → effects, composed of raft's RawNode, the lessor, the master lease and
// the keyspace, and beside it Answer, a short way to answers that need only memory, which goes on the goroutine of who
// asks. It owns no goroutine, reads no clock and never waits; the events and effects are in event.go. Its drivers are
// package node, with this machine's clocks, disk and transport, the tests of this package, and package simulation, with
// clocks moved by hand, disks that crash and networks that lose. Requests that arrive while a write is being synced are
// gathered into the next log entry, so one sync carries many commands (group commit), and that entry is on its way to
// the disk before the one before it is applied. A read needs no log entry: Step says when it may happen and at which
// revision, and the caller's goroutine reads a snapshot of the keyspace there.
//
// Log and state share one Pebble database. Entries are written by one synced batch; the state that applying them
// produces follows unsynced in the same write-ahead log, so that after a crash it is a prefix of what had been applied,
// and the rest is applied again from the log. That order also makes truncating the log safe: a truncation that survived a
// crash stands behind the state that replaces what it removed.
//
// Names are held by leases. Who stands in line for one follows from keys: after every command notice looks at what it
// changed, however that came about, and hands the name on. What is remembered of the past of a name is a record beside
// the keys. Such records, and those of the leases of claims, change all the time, so they go through a write-behind
// buffer of package record. Code that reads them from the database, or copies it for another member, calls
// [Replica.Flush] first.
//
// A member that becomes leader applies the first entry of its own term, begins a leadership in the lessor with it, promotes
// the lessor, and only then serves.
//
// # In a group of several
//
// Elections are ours. raft's own timer counts ticks and knows nothing of promises, so it is never driven at a follower:
// one that has not heard a leader for eight tenths of the election timeout, and has promised nobody anything, campaigns,
// and the members do so one after the other. A leader that cannot go on says so if it can, and then nobody waits. Requests
// for votes that come before a promise has ended wait in the member and are dealt with when it has.
//
// Leases are those of package masterlease, beside raft's messages in a [Message]. The longest promise that a member
// ever made is on its disk before the first of that length is made, and for so long it holds off votes after a start. What raft
// would take at its word and must not, such as rounds that nobody began, is kept from it.
//
// Answers are looked at after the act. A leader reads, or moves a deadline, then looks at its lease, and puts its end
// beside the answer, so that the driver looks at the clock once more just before it sends. If the lease does not hold,
// the answers wait for a round: messages to all, shared by all who wait, that show that this member led when they were
// made. A round that takes too long is started over, and a request that has waited for ReadTimeout fails with that reason.
//
// A follower asks its leader from which index on its own state is new enough, and reads its own state then; it sends
// renewals on, many in one message, and again if no answer comes. All else is refused with the leader's id: who drives
// the member brings the client there.
//
// A member that lacks what the log no longer has gets the whole state, streamed and staged beside its own, which it
// replaces in one step. Nothing else is written meanwhile.
//
// Members know each other by the incarnation of their data folders as well. The first that a member hears of another is
// written down; one that comes back with another folder has forgotten votes, entries and promises, and is not listened
// to. A member that is new has no vote until all know its folder (found.go), and one that finds that a leader lacks what
// it knows to be committed halts (fork.go). The members of a cluster are those that it was founded with.
//
// # Where things are
//
//	replica.go, event.go         Step; what goes in and comes out
//	command.go, again.go, names.go
//	                             what clients ask for, and what applying it does
//	propose.go, bulk.go, persist.go, apply.go, recover.go, compaction.go, space.go, memory.go, admission.go, pace.go
//	                             what becomes of commands, the state, and what bounds them
//	answer.go                    answers from memory
//	members.go, elect.go        the others, promises, elections, handing over and leaving
//	found.go, fork.go            new members, and clusters that have forked
//	confirm.go, forward.go       rounds, followers' reads and renewals
//	health.go, yield.go          whether requests work through this member; leaders that hand over to a better one
//	view.go, cluster_status.go   what a driver sees besides effects
//	message.go                   what members say to each other
//	ship.go, install.go
//	                             a member's whole state, on its way to another
//	refound.go                   the database of a snapshot becomes that of a new cluster
//
// # What it never does
//
// It never compares clocks of two machines, never decides on the log's content by local configuration (ids, TTLs and
// limits are settled before a command is proposed), and never reports a command as failed whose outcome it does not
// know. It never campaigns or votes against its own promise, and never uses raft's lease-based reads. It changes no
// membership.
package replica
