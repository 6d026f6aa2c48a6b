// Package datadir owns a member's data directory: its version, its database's options and write-ahead logs, the reserve of
// disk space in it, and the snapshots from which another directory can be made.
//
// [Open] makes a directory or opens the one that is there. It refuses a directory of another version or of another
// program, and one that another process uses. A [Reserve] keeps blocks of the disk for what must go on when the disk is
// full. [TakeSnapshot] copies a database while its member goes on, and [Restore] makes a directory from that copy.
//
// A write-ahead log that a crash cut off is what a crash leaves; one that was damaged after it had been synced is reported
// as such (wal.go).
//
// # What it never does
//
// It never looks into a record: the caller of [Restore] changes the database. It never repairs damage, and it never
// removes a directory's data. It draws no random numbers.
package datadir
