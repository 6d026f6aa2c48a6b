// Package sqlite keeps leases in a SQLite file: for programs on one machine, without any server.
//
//	sqlite:/var/lib/app/leases.db              a file, which is created if it does not exist
//	sqlite:leases.db?ns=staging                in the working directory, and in a namespace of its own
//
// It gives the promises of package claim to all processes of one machine that open the same file, whatever
// becomes of them. A process that is killed in the middle of a write leaves the record as it was before or
// after the write. An acknowledged write survives a power cut, if the disk keeps what it has synced.
//
// # How it works
//
// The SQL is that of package sqlstore; each write is one statement, which takes the file's lock when it begins.
// Statements are prepared once on each connection. Writers of one process share a queue, whichever of its
// stores they use to write to the file. The writer whose turn it is commits, with its own statement, those that
// wait at the same store. Writers of several processes retry while the file is locked.
//
// All processes of one boot of the machine share its clocks, so they judge the end of a lease exactly. A file
// on the disk from which the machine runs shows more: a holder from before the last boot is gone, so no client
// waits for its lease to expire. In any other file others wait for it as if it were on another machine, which
// it may be. A file system may show the files of another kernel: virtiofs, 9P, FUSE, an overlay, or one that is
// unknown here. A process that reaches a file through one writes a domain that names no boot, "shared/…", so
// that no other process takes it for gone.
//
// On Linux the processes that wait for a name have tickets in its queue. Tickets are locks on bytes of a file
// next to the database, which end with their process. The head of the queue checks some two hundred times a
// second whether any process has written, which takes microseconds; all others look at the locks. On other
// systems, or if that file cannot be created, each waiting process checks some sixty times a second whether any
// process has written.
//
// Files opened here are in WAL mode with synchronous = EXTRA. A [database/sql.DB] that is passed to [New] needs
// at least synchronous = FULL, and a busy timeout, on each of its connections:
//
//	sql.Open("sqlite", "file:app.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
//
// # The gate
//
// [Gate] makes a transaction in the same file commit only if a lease is still held. While the transaction is
// open no other transaction can write to the file, not even the renewals of the lease. It must be shorter than
// a third of the TTL.
//
// # One path
//
// SQLite keeps its log next to the path of the file, so all processes must reach the file by one path. Symbolic
// links are followed. [Open] and [New] refuse a file in these cases:
//
//   - It is mounted without its directory.
//   - It has several hard links.
//   - Its log is not a regular file next to it.
//   - Its directory lists it under another name.
//
// A database that is passed to New must lock as SQLite does by default: without nolock, immutable, or a vfs of
// the caller's.
//
// # What it never does
//
// It does not work across machines, nor between a machine and its virtual machines, whose locks on a shared
// file need not exclude each other. It refuses a file on a network if it can see that. It has no store-clock
// mode, since there are no other clocks. It starts no goroutine, and changes no setting of a database that was
// passed to it.
package sqlite
