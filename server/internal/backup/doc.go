// Package backup makes backups of a member by a schedule, in Leasekeeper's own format of snapshots.
//
// It promises that a file with the name of a backup is complete, on the disk and verified: it was read back, its checksum
// matched, every record and every version of a key in it was decoded, and it is of this member's data directory. It contains
// every change that was acknowledged before the backup began, because the member first confirms with the leader that it is up
// to date.
//
// Each member with a directory makes backups of its own, whichever member leads. So an operator chooses the members, a backup does
// not depend on elections, and a member's metric says something about that member.
//
// A backup has a limit on its time, on what it reads and writes in a second, and on the space that it takes. It never
// removes the backups of another member, another cluster or another data directory, nor the one just made, and never ends
// the member: after a failure it counts it, logs it and tries again. If the disk fails under the database of a copy in such a
// way that it cannot be closed, the member goes on without its memory and files, and makes no more backups until it restarts.
package backup
