// Package etcdfile owns the database file of etcd: a bbolt file with the keys, the leases, the users and roles, and the members
// of one member.
// etcd's snapshots are such files, with a SHA-256 at the end.
//
//   - [Export] writes the state of a member into such a file, with a [Writer]. The result is an [Image], which etcd's
//
// tools accept.
//   - [Import] fills the database of a new member from such a file, which [Open] opens.
//
// # What is lost
//
// etcd's format has keys with their history, leases, users with their passwords' hashes, roles, the compacted revision and the
// list of members. It has no place for pins, reasons, records of names and their tenures, creators of claims, rights over
// names, and hold-offs. An export leaves these out. An import takes the keys
// without their history, and leaves out the members.
//
// # What it never does
//
// It never changes a file that it reads, and never uses more memory than a few batches need, however large the state is.
// It imports none of etcd's own code: buckets and encodings are those of etcd 3.6, which 3.4 to 3.7 read too.
package etcdfile
