// Package replica is one member of a Raft cluster that keeps leases and keys: the only member, or one of several.
//
// # What it promises
//
// Acknowledged changes survive. A reply leaves only after its change is on stable storage on a majority and applied here. A
// member that restarts from what was synced has exactly that state.
//
// No later leader undercuts an acknowledged renewal. A stale command changes nothing: one of an older term, or for an older
// grant of a lease id.
//
// A leader answers from memory only while no other leader can be elected. Otherwise it asks a majority first, or answers
// that it does not know. No answer of Step or Answer comes from a state older than the commit index at the time of the
// question. A caller that reads [Replica.Store] without asking may see an older state.
//
// # How it works
//
// A [Replica] is one function: Step(now, events) returns effects. It composes raft's RawNode, the lessor, the master lease,
// the names and the keyspace. Answer is a short path for answers that need only memory; it runs on the caller's goroutine.
// The package owns no goroutine, reads no clock and never waits. The events and effects are those of package event. Its drivers are
// package node, with this machine's clocks, disk and transport; package simulation, with clocks, disks and networks that
// fail on demand; and the tests of this package.
//
// Requests that arrive while a write is being synced share the next log entry, so one sync carries many commands (group
// commit). That entry is on its way to the disk before the one before it is applied. A read needs no log entry: Step says
// when it may happen and at which revision, and the caller's goroutine then reads a snapshot of the keyspace.
//
// Log and state share one Pebble database. Entries are written by one synced batch. The state that results from them
// follows unsynced in the same write-ahead log. So after a crash the state is a prefix of what had been applied, and the
// rest is applied again from the log. This order also makes truncation of the log safe: a truncation that survived a crash
// comes after the state that replaces the removed entries.
//
// Leases hold names. The queue of a name follows from its keys: after every command updateNames reports the changes of keys
// to package ownership, which advances the queue. The past of a name is in records alongside the keys. Such records, and
// those of the leases of claims, change all the time, so they go through the write-behind buffer of package record. Code
// that reads them from the database, or copies it for another member, calls [Replica.Flush] first.
//
// A new leader applies the first entry of its own term, begins a leadership in the lessor with it, promotes the lessor, and
// only then serves.
//
// # In a cluster of several members
//
// This package drives elections. Raft's own timer counts ticks and knows nothing of promises, so it is never driven at a
// follower. A follower campaigns if it has not heard a leader for eight tenths of the election timeout and no promise
// forbids it. Members campaign one after the other. A leader that cannot continue says so if it can, and then the others
// do not wait. A request for a vote that comes before a promise has ended waits in the member until it has.
//
// The master lease is that of package masterlease; it travels alongside raft's messages in a [Message]. A member persists
// its longest promise before it makes the first of that length. After a start it holds off votes for that long. Messages
// that raft would misunderstand are kept from it (members.go).
//
// A leader checks its master lease after the act: it reads, or moves a deadline, and then looks at the lease. The answer
// carries the end of the lease, so the driver checks the clock once more just before it sends. If the lease does not hold,
// the answer waits for a ReadIndex round. Such a round is shared by all answers that wait, and shows that this member led
// when they were made. A round that takes too long is started over. A request that has waited for ReadTimeout fails.
//
// A follower asks its leader from which index on its own state is new enough, and then reads its own state. It forwards
// renewals, many in one message, and repeats them if no answer comes. It refuses everything else and names the leader; the
// driver redirects the client.
//
// A member that needs entries which the log no longer has gets the whole state. It is streamed and staged in files, and
// replaces the member's own state in one step. Nothing else is written meanwhile.
//
// Members know each other by the incarnation of their data directories as well. A member writes down the first incarnation
// of each peer. A peer that returns with another directory has forgotten votes, entries and promises, so its messages are
// dropped. A new member has no vote until all others know its directory (found.go). A member that finds that a leader lacks
// committed entries halts (fork.go).
//
// A cluster has a list of members from its first change on, see package roster. Changes are entries of their own, one at a
// time (reconfigure.go). A member that joins has an id that no member ever had, and is bound to its data directory.
//
// # Where things are
//
//	replica.go, event.go         Step; the names of its events and effects
//	command.go, names.go         requests of clients, and commands on names
//	admission.go, memory.go, space.go
//	                             which requests are refused
//	propose.go, versions.go, persist.go, apply.go, recover.go, compaction.go, fatal.go
//	                             commands on their way through the log into the state
//	answer.go                    answers from memory
//	members.go, elect.go         the other members, promises, elections, handing over and leaving
//	found.go, fork.go            new members, and clusters that have forked
//	reconfigure.go, lease.go     changes of the members; the master lease alongside messages
//	confirm.go, forward.go       ReadIndex rounds, followers' reads and renewals
//	health.go, yield.go          whether requests work through this member; leaders that hand over to a better one
//	view.go, cluster_status.go   what a driver sees besides effects
//	errors.go                    errors about the member
//	ship.go, install.go          a member's whole state on its way to another
//
// The packages below it own parts that need no Raft: event the events and effects, entry the commands of the log, gate what
// members of other versions understand, intake the queues, message the messages between members, record the records in the
// database, yield the decision that another member should lead.
//
// # What it never does
//
// It never compares clocks of two machines. It never decides on the log's content by local configuration: ids, TTLs and
// limits are settled before a command is proposed. It never reports a command as failed whose outcome it does not know. It
// never campaigns or votes against its own promise, and never uses raft's lease-based reads. It never
// changes the members by itself, except that it binds them to their data directories.
//
// Codes such as T5 are rules of docs/design/time-and-identity.md, codes such as L6 of docs/design/master-leases.md.
package replica
