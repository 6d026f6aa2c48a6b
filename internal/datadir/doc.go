// Package datadir owns a member's data directory: its version, its database's options and write-ahead logs, the
// reserve of disk space in it, and snapshots.
//
//   - [Open] creates a data directory or opens an existing one. It refuses a directory of another version or of
//
// another program, and one that another process uses.
//   - A [Reserve] keeps disk blocks for work that must go on when the disk is full.
//   - [TakeSnapshot] copies a database while its member goes on, and [Restore] makes a data directory from that copy.
//   - A write-ahead log may end in a write that a crash cut off. A log that was damaged after it had been synced is
//
// reported (wal.go).
//
// # What it never does
//
// It never interprets a record: the caller of [Restore] changes the database. It never repairs damage, and never
// removes a directory's data. It draws no random numbers.
package datadir
