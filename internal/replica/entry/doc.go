// Package entry owns the commands of the replicated log, and the bytes that they are in a log entry.
//
// # What it promises
//
// [Command] is the closed set of changes that members replicate: those that clients request, and the expiries and
// checkpoints that a leader's lessor decides. A command is decided completely before it is encoded. [Payload] and
// [Decode] give back what [New] and [Prepare] encoded, on every member and by every later version: the format is
// [logpb.Entry], whose fields are added and never renumbered.
//
// [IsBulk], [NeedsSpace] and [StaysInMemory] say what a command takes if it is applied.
//
// # How it works
//
// Claims and releases are most of what a busy member writes and reads. Their fields are encoded and decoded one by one,
// without a protobuf message in between; the tests compare the bytes with those of package proto. `go test -bench .`
// measures both ways. Every other command becomes a [logpb.Command] first.
//
// # What it never does
//
// It never decides whether a command is allowed, applies one, or reads a clock. It never repairs bytes that it does not
// understand: [Decode] returns an error.
package entry
