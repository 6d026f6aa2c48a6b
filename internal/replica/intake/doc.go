// Package intake owns the commands that a leader has taken on and not yet proposed, and the limits of what it takes on.
//
// A [Queue] holds two queues: one of short commands, and one of bulk. Each log entry carries short commands first and then
// a little of bulk, so a flood of large puts delays a grant by one short entry. [Queue.Full] refuses new work before
// urgent work. A repeated claim joins the first one that is still in flight ([Queue.Join]). A rate limiter leaves clients
// most of the time while many leases expire together ([Queue.MayExpire]). A [SpaceGauge] says whether clients get space.
//
// The package never decides whether a command is allowed, and never reports its outcome: its caller answers clients. It
// reads no clock: the time is an argument.
package intake
