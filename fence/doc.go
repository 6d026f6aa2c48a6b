// Package fence is the resource side of a lease: it refuses the writes of holders who have been succeeded.
//
// # What it promises
//
// Every lease carries a fencing token, a number that strictly increases over successive holders of one name.
// A resource remembers the highest token it has seen, its mark. A write with an older token is refused with
// [ErrStale]; an equal or newer one passes, and a newer one raises the mark before anything is written. So
// from the moment a new holder has acted, or has called [Guard.Advance], its predecessors can do no harm,
// however late they wake up.
//
//   - [Guard.Check] admits a token: from then on no older token is admitted.
//   - [Guard.Do] admits a token and runs the write, while newer tokens wait: what the writes have done is
//     done in the order of their tokens.
//   - A mark is saved before it is believed. If saving it fails, the write is not admitted and the error
//     says so, [ErrUnsaved]. A restart forgets no mark that a write was admitted with.
//   - A slow save of one name's mark delays no other name. The memory is bounded by [Config].MaxNames.
//
// # Why a check alone is not enough
//
// Between a check and the write that follows it, a program can be paused for any time: by the scheduler, a
// collection of garbage, a slow disk, its virtual machine. If another holder comes in that gap, the old write
// lands after the new one although it was checked. So the check and the write must be one step. Where the
// resource can do both in one, it should: a condition in the UPDATE (packages sqlfence and mongofence), a
// conditional PUT (the example of this package), a rename of a file that is gone if one came too late (package
// filefence). Where it cannot, Do makes newer tokens wait for the write that was admitted before them, and
// interrupts that write by its context so that they need not wait for long.
//
// # How it works
//
// One lane for each name (lane.go) decides: refuse, admit, raise the mark, or wait. It is determined by its
// inputs. [Guard] (guard.go) locks and waits for it and calls [Marks]. Resources of four kinds have packages
// of their own beside it, because they touch the world: httpfence (middleware and a client's transport, on a
// Guard), filefence (files that are replaced, by any number of processes), sqlfence (rows, and a table of
// marks), mongofence (documents, and a collection of marks).
//
// # What it never does
//
// It does not know leases: it never asks whether one is still held, and reads no clock. It does not know
// whether a token was really given out, so a caller who makes one up can lock others out: let only those
// write who may. It never lowers a mark. It starts no goroutine, opens no file and no socket. A Guard is not
// the place where two servers of the same resource meet: let the resource itself check then.
package fence
