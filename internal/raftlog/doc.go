// Package raftlog keeps a member's Raft log in its database. It implements raft.Storage, appends entries, records
// which entries are on stable storage, and truncates the log.
//
// It keeps the newest entries in memory too. It refuses a log that is not consistent (a gap, falling terms, an entry
// under the wrong key), and never repairs one.
// [Terms] are the first entries of terms; they outlive truncation.
package raftlog
