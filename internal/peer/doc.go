// Package peer connects the members of a group: it carries frames, which are bytes to it, from one to another.
//
// # What it promises
//
//   - A frame arrives whole, at most once and unchanged, or not at all. Frames of one sender and of one class, urgent or
//     not, arrive in the order in which they were sent, with gaps where some were lost. Urgent ones overtake the others.
//   - [Transport.Send] never waits. What waits to be sent to one member is bounded in number and bytes, whatever that
//     member does, and does not hold up what is for others. When the bound is reached, of the urgent frames the oldest
//     gives way, since a newer word of this member replaces what it said before; of the others the newest is not taken,
//     since what follows a gap is of no use to the receiver of a log. An urgent frame that has waited for longer than
//     [Config.FrameLife] is not sent any more, and other frames wait only while there is a connection.
//   - Config.Unreachable is told after frames for a member were, or may have been, lost. One call may stand for many.
//   - A member that does not answer is noticed within [Config.Silence], also if its connection seems to be open. It
//     is tried again at least twice a second, and at once when it connects to this one.
//   - A caller that is of another group, is none of the members, or was to reach another one is refused, with a text
//     that says what to mend. With certificates configured, a caller without one of the members' authority is
//     refused during the handshake, and a member whose certificate is not for the host in its address after it.
//     Changed files are used from the next connection on.
//   - [Transport.Ship] returns without error only if the receiver has taken the whole state. If it cannot know, it
//     says so ([ErrUnknownOutcome]).
//
// # How it works
//
// A member dials every other one, for what it has to send; answers that are frames themselves come back on the
// connection that the other one has dialled. On it are a stream for urgent frames, one for the others, and one for each
// state that is shipped, each with flow control of its own, and the system is kept from taking in more than the network
// can carry, so that urgent frames do not wait behind much. All frames that wait for a stream leave as one message. The
// urgent stream carries pings, and echoes come back. A second connection, made when it is first used, carries whole
// calls of clients that only another member can answer ([Transport.Conn]), so that however many there are do not slow
// the group down. Every call says who calls ([From]).
//
// # What it never does
//
// It never looks into a frame, and knows nothing of Raft. It does not repeat a frame. It does not say whether a
// frame has arrived. It does not judge incarnations: it hands them over with each frame.
package peer
