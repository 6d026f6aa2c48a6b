// Package sqlite keeps leases in a SQLite file: for programs on one machine, without any server.
//
//	sqlite:/var/lib/app/leases.db              a file, which is made if it is not there
//	sqlite:leases.db?ns=staging                beside the working directory, and in a namespace of its own
//
// It promises what package claim promises, to all processes of one machine that open the same file, whatever
// becomes of them: a process that is killed in the middle of a write leaves the record as it was or as it
// should be. What was acknowledged survives a power cut, as far as the disk does what it says.
//
// # How it works
//
// The SQL is that of package sqlstore; each write is one statement, which takes the file's lock when it begins.
// Statements are prepared once on each connection. Writers of one process stand in line, through whichever of its
// stores they write to the file, and whose turn it is commits what waits at the same store with its own statement; those of several processes ask again as long as the file is locked. All processes of one boot of the machine share its clocks, so an end is judged
// exactly; and in a file on the disk that the machine runs from, a holder from before it was booted is known to be
// gone, so nobody waits for its lease to end. In any other file others wait for it as if it were on another machine,
// which it may be. A process that reaches a file through a file system that may show those of another kernel
// (virtiofs, 9P, FUSE, an overlay, one that is not known here) writes a domain that names no boot, "shared/…", so
// that nobody takes it for gone.
//
// On Linux the processes that wait for a name have tickets in its queue: locks on bytes of a file beside the database,
// which end with their process. The head of the queue looks some two hundred times a second whether anybody has written,
// which takes microseconds; all others look at the locks. Elsewhere, and where the file cannot be made, each process that
// waits looks some sixty times a second whether anybody has written.
//
// Files opened here are in WAL mode with synchronous = EXTRA. A [database/sql.DB] that is passed to [New] must be
// set up to synchronous = FULL at least, with a busy timeout, on each of its connections:
//
//	sql.Open("sqlite", "file:app.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
//
// # The gate
//
// [Gate] makes a transaction in the same file commit only if a lease is still held. While it is open nobody else
// can write to the file, the renewals of the lease among them: it must be shorter than a third of the TTL.
//
// # One path
//
// SQLite keeps its log beside the path of the file, so all processes must reach the file by one path. Symbolic links
// are followed. [Open] and [New] refuse a file that is mounted without its folder, that has several hard links, whose log
// is no plain file beside it, or that its folder lists under another name. A database that is passed to New must lock as
// SQLite does by default: without nolock, immutable, or a vfs of the caller's.
//
// # What it never does
//
// It does not work across machines, nor between a machine and its virtual machines, whose locks on a shared file
// need not keep each other out: a file on a network is refused where that can be seen. It has no store-clock
// mode, since there are no other clocks. It starts no goroutine, and changes no setting of a database that was
// passed to it.
package sqlite
