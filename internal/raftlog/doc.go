// Package raftlog keeps a member's Raft log in its database: it is raft's Storage, and appends, notes what is stable and
// truncates.
//
// The newest entries are in memory too. [Terms] are the first entries of terms; they outlive truncation. A log that does not hang together is refused, and never repaired.
package raftlog
