// Package peer connects the members of a cluster: it carries frames from one member to another. A frame is a string
// of bytes.
//
// # What it promises
//
//   - A frame arrives whole, unchanged and at most once, or not at all. Frames of one sender and one class (urgent or
//     bulk) arrive in the order in which they were sent, with gaps where frames were lost. Urgent frames overtake bulk
//     frames.
//   - [Transport.Send] never waits. The queue for each member is bounded in frames and bytes, and delays no other
//     member's frames. A full urgent queue drops its oldest frame, because later frames of this member supersede it. A
//     full bulk queue drops the new frame, because the receiver of a log cannot use frames after a gap.
//   - An urgent frame older than [Config.FrameLife] is not sent. Bulk frames are only queued while there is a
//     connection.
//   - The transport calls Config.Unreachable after frames for a member were lost, or may have been. One call may
//     stand for many frames.
//   - A member that does not answer is detected within [Config.Silence], even if its connection seems to be open. The
//     transport retries at least twice a second, and at once when that member connects to this one.
//   - The transport refuses a caller of another cluster, a caller that is no member, and a call meant for another
//     member. The refusal says how to fix the cause. With certificates configured, it also refuses a caller without a
//     certificate of the members' authority during the handshake, and a member whose certificate is not for the host in
//     its address after the handshake. Changed certificate files take effect from the next connection on.
//   - At most [Config.MaxConnections] accepted connections are open. Connections on which no member has called give way to
//     new ones, so they keep no member out. A connection that does not complete its handshake in two seconds is closed.
//   - [Transport.Ship] returns nil only if the receiver has taken the whole state. If it cannot know, it returns
//     [ErrUnknownOutcome].
//
// # How it works
//
// A member dials every other member for the frames that it sends. Frames in the other direction use the connection
// that the other member dials.
//
// A connection has a stream for urgent frames, one for bulk frames, and one for each shipped state. Each stream has
// its own flow control. The transport keeps the operating system's send buffer short, so that urgent frames do not
// wait behind bulk data. All frames that wait for a stream leave as one message. The urgent stream carries pings, and
// the other side echoes them.
//
// A second connection, made at its first use, carries clients' calls that only another member can answer
// ([Transport.Conn]). So many such calls do not slow down the cluster's own frames. Every call identifies the calling
// member ([From]). The answer to a refused call says that no service has received it ([Refused]).
//
// # What it never does
//
// It never interprets a frame, and knows nothing of Raft. It does not resend frames or confirm their arrival. It does
// not judge incarnations: it passes them on with each frame.
package peer
