// Package entry owns the commands of the replicated log, and their encoding in a log entry.
//
// # What it promises
//
// [Command] is the closed set of changes that members replicate: those that clients request, and the expiries and
// checkpoints that a leader's lessor decides. A command is complete before it is encoded: applying it needs no
// further decision.
//
// [Payload] and [Decode] return the commands that [New] and [Prepare] encoded, on every member and in every later
// version. The format is [logpb.Entry]: new versions add fields and never renumber one.
//
// [IsBulk], [NeedsSpace] and [StaysInMemory] say what a command takes if it is applied.
//
// # How it works
//
// Claims and releases are most of the commands of a busy member. Their fields are encoded and decoded one by one,
// without a protobuf message in between. The tests compare the bytes with those of package proto, and `go test -bench
// .` measures both. Every other command becomes a [logpb.Command] first.
//
// # What it never does
//
// It never decides whether a command is allowed, applies one, or reads a clock. It never repairs bytes that it cannot
// decode: [Decode] returns an error.
package entry
