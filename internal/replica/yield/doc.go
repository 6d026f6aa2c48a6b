// Package yield decides when a leader hands over because another member is better off: the leader's disk is slow, or it has
// no space for clients.
//
// # What it promises
//
// A hand-over costs some 30 ms. A slow leader delays every write, since nothing is applied before it is stable there. A
// full leader refuses writes for which others have space. So a leader hands over when another member is known to be better
// off. A member about which too little is known never counts as better. Between two hand-overs of one member lies at least
// an [Interval].
//
// # How it works
//
// Slowness is relative to the others, and measured with the leader's clock alone. A [Write] of the log is slow if it is
// still in progress here although another member acknowledged it long ago. One very slow write is enough, or two slow ones
// in a row ([Judge.Faster]). Members report their space themselves ([Judge.Hear]); a leader that has been full for an
// election timeout compares itself with the newest reports ([Judge.Roomier]). [Judge.Choose] picks the reason and the
// member.
//
// # What it never does
//
// It never reads a clock: the time is an argument. It does not know Raft: the caller looks up which members have an entry,
// and which of the better ones can take over. It hands over nothing itself.
package yield
