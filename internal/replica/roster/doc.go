// Package roster is the replicated list of a cluster's members, and the rules by which it changes.
//
// A [Roster] is a value: a change returns another one. Every member applies the same changes in the same order, so all
// members have the same list at the same log entry. Before the first change a cluster has no list. Its members are then
// those with which it was founded, and the first change carries them ([Entry.Founders]).
//
// # What it promises
//
// One change adds, removes or promotes one member, so the voters before and after it have a common member in any two
// majorities. An id that was removed never comes back. At most one voter is without a known data directory, unless the
// cluster was founded so.
//
// # How it works
//
// [Roster.Apply] refuses what makes no sense in any cluster. It depends on the list and the change alone, so all members
// decide alike. [Roster.Check] is for the leader before it proposes a change. It also looks at which members are up, so
// its outcome is not replicated.
//
// A member is bound to its data directory: a [Bind] records the directory's incarnation once the leader has heard the
// member. A member whose directory is lost has forgotten its votes, entries and promises. It is removed, and comes back
// under another id.
//
// # What it never does
//
// It knows neither Raft nor the network, reads no clock and stores nothing. It draws no ids.
package roster
