// Package gate decides which of the newer commands, records and messages a cluster may use.
//
// # What it promises
//
// While a cluster is upgraded, its members are of different versions. A member that does not know a command halts at it.
// So each command, record or message that older members do not know belongs to a [Version]: its gate. A leader opens a
// gate once every other member has said, since the leader was elected, that it knows the version. A version stays open for
// ever once the log has used it. A change of the members does not wait for a member that is down ([Gates.Understood]): that
// member may never come back, and the change may be its removal.
//
// # How it works
//
// The log replicates two versions ([State]). The cluster version is the greatest that every member knows. The leader
// states it in the log whenever it changes ([Gates.Due]), so it rises by itself after an upgrade, and falls after a
// downgrade. The version in use is the greatest of which the log has used something ([Gates.Apply]). It never falls: an
// older program can no longer read that log. A member marks its data directory with it, and tells it to members that
// connect, so older programs refuse the directory and are refused by the others.
//
// A new command: add a constant and raise [Newest], name the gate in entry.Gate, and check [Gates.Open] before the command
// is proposed. An entry carries the version that it needs, so an older program says what is missing. For anything that is
// no command, such as a membership change of raft, the leader first logs an entry that only needs the version.
//
// # What it never does
//
// It never reads a clock, sends a message or writes a record. It does not know the members: the caller names them.
package gate
