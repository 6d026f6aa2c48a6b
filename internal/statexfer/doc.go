// Package statexfer owns a member's whole state on its way to another member: what belongs to it, its form as a stream, and
// the files in which it waits until it replaces another.
//
// A [Reader] makes a stream of what a snapshot of a member's database shows: all records that members share, with a checksum
// at each step. [Stage] reads such a stream into tables beside the receiver's database, and [Install] puts these in the
// place of the receiver's state in one step, with the receiver's own records as they are.
//
// # What it never does
//
// It never believes a byte before its checksum is right, and never sends a record of which it does not know whether members
// share it. It never changes a database before the whole state is there. It knows nothing of Raft's protocol: when a state
// is sent, and what becomes of the log, package replica decides.
package statexfer
