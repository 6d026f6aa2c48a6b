// Package statexfer owns the transfer of a member's whole state to another member: what belongs to the state, its
// form as a stream, and the files in which the receiver keeps it until it replaces the receiver's own.
//
//   - A [Reader] makes a stream from a snapshot of a member's database. The stream contains all records that members
//
// share, with a checksum for each frame.
//   - [Stage] reads such a stream into tables in the receiver's data directory.
//   - [Install] replaces the receiver's state by these tables in one step, and keeps the receiver's own records.
//
// # What it never does
//
// It uses no byte before it has verified the checksum. It never sends a record without knowing whether members share
// it. It never changes a database before the whole state has arrived. It knows nothing of Raft's protocol: package
// replica decides when to send a state and what becomes of the log.
package statexfer
