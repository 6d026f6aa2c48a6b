// Package fence is the resource side of a lease: it refuses the writes of holders that have been replaced.
//
// # What it promises
//
// Every lease carries a fencing token, a number that strictly increases over successive holders of one name.
// A resource remembers its mark: the highest token that it has seen. It refuses a write with an older token
// with [ErrStale]. It admits a write with an equal or newer token, and raises the mark before the write
// begins. So from the moment a new holder has written, or has called [Guard.Advance], previous holders can do
// no harm, however late they wake up.
//
//   - [Guard.Check] admits a token: from then on it admits no older token.
//   - [Guard.Do] admits a token and runs the write, while newer tokens wait: the writes take effect in the
//     order of their tokens.
//   - A guard saves a mark before it relies on it. If saving fails, it does not admit the write, and returns
//     [ErrUnsaved]. A restart forgets no mark that a write was admitted with.
//   - A slow save of one name's mark delays no other name. [Config].MaxNames bounds the memory.
//
// Codes such as G12 are rules of docs/design/time-and-identity.md.
//
// # Why a check alone is not enough
//
// A program can be paused for any time between a check and the write that follows it: by the scheduler, the
// garbage collector, a slow disk, its virtual machine. If another holder writes in that gap, the old write
// lands after the new one although it was checked. So the check and the write must be one step. Where the
// resource can do both in one step, it should:
//
//   - a condition in the UPDATE (packages sqlfence and mongofence);
//   - a conditional PUT (the example of this package);
//   - a rename of a file that a newer holder has removed (package filefence).
//
// Where the resource cannot, Do makes newer tokens wait for the write that was admitted before them. It also
// ends the context of that write, so that newer tokens do not wait for long.
//
// # How it works
//
// Each name has one lane (lane.go). The lane decides whether a token is refused, is admitted, raises the mark,
// or waits; its decisions depend on its inputs alone. [Guard] (guard.go) locks the lane, waits for it and calls
// [Marks]. Resources of four kinds have packages of their own, because they do I/O: httpfence (middleware and
// a client's transport, on a Guard), filefence (files that are replaced, by any number of processes), sqlfence
// (rows, and a table of marks), mongofence (documents, and a collection of marks).
//
// # What it never does
//
// It does not know leases: it never asks whether a lease is still held, and reads no clock. It does not know
// whether a token was really issued, so a caller that invents one can lock others out: admit only callers that
// are allowed to write. It never lowers a mark. It starts no goroutine, opens no file and no socket. Two
// servers of one resource do not agree through their Guards: there the resource itself must check the token.
package fence
