// Package masterlease is the lease of a Raft leader. The other members promise not to help elect another
// leader for a while. A quorum of such promises is the leader's authority: while it is valid, the leader
// answers reads and renewals from memory, without a message to any member.
//
// Codes such as F2, L3 and E1 are rules of docs/design/master-leases.md. Codes such as T1 and C8 are rules of
// docs/design/time-and-identity.md.
//
// # What it promises
//
//   - While [Authority] holds at a leader, no leader of a later term can be elected. So the leader's applied
//     state is the newest state there is, and two members never have authority at the same moment.
//   - This needs no synchronized clocks. Only lengths of time and echoed stamps cross the network. It does
//     need one thing of every member's clocks: over the length of a promise, at least one of the two clocks of
//     a [clock.Instant] runs at a rate within the drift bound.
//   - Messages may be lost, delayed, duplicated and reordered. Members may crash and restart at any moment.
//     None of this breaks the first promise, and late copies of messages do not prolong a leaderless time.
//   - A promise lasts no longer than requested. If it is shorter than the election timeout, a failover takes
//     no longer than without leases. A planned handover, a clean stop and a step-down wait for no promise.
//   - A leader gives up its authority if its disk or its commit index hangs ([Holder.Progress]). The same
//     holds if its disk is much slower than the disks of the others.
//   - The package notices a clock outside its bound in three ways ([Fault]). Then there is no authority.
//
// # How it works
//
// There are two pure state machines. Both take the time as an argument. The caller reads the clock after it
// has taken the message out of its queue.
//
// Every member has a [Grantor]. It runs after raft has processed an append, a heartbeat or a snapshot of the
// leader that the member follows (Hear). The grantor then promises that leader the requested time from now,
// lengthened by the drift bound. The answer echoes the newest stamp (Grant). Until the promise has ended on both clocks,
// the member does not vote, pre-vote or campaign. It parks requests for votes, and hands them to raft when
// the gate opens (Vote, Unpark). It drops parked requests that a newly extended promise makes useless. Only a
// newer stamp extends a promise.
//
// Every member has a [Holder], which works only on the leader. It stamps what the leader sends (Request), and
// keeps the newest stamp that each voter echoed (Receive). The leader counts on a voter's promise from the
// stamp, for the requested time shortened by the drift bound. That is safe, because the voter promised after
// the stamp was taken, and for longer. The authority ends when the promises of a quorum end. In joint
// consensus both quorums must hold. The configuration is always the applied one. The leader itself, if it is
// a voter, counts as a promise without end: it cannot vote for another member and still lead. Learners make
// promises, but the leader does not count them. There is no authority before the leader has applied an entry
// of its own term.
//
// Check after the act. First read, or move a deadline, on a state that contains everything committed when the
// request came. Then load the authority, then read the clock, then answer ([Holder.Check]). Read the clock
// again just before the answer leaves. If the authority does not hold, one round of messages (raft's
// ReadIndex) confirms all waiting answers together. That round also renews the lease.
//
// Epochs. A leader that hands over first gives up its authority, and then sends a [Release] with the order to
// campaign, so that no member waits. If the handover is aborted, the release may still be on its way, for any
// length of time. So the leader continues in a new epoch, to which that release does not apply. No grant of
// an earlier epoch counts then.
//
// Starting. A member that starts has forgotten its promises. So it holds off votes for the length of the
// longest promise that it ever made, and no release shortens that. The member keeps this length on stable
// storage: it makes a longer promise only after the new length is written ([Grantor.ToPersist]). Members that
// found a cluster by explicit order need no hold-off.
//
// A member accepts a later leader at once, whatever it promised to an earlier one. A quorum of voters must
// have been free to elect the later leader, and that quorum shares a member with every quorum of the earlier
// leader. So promises hold back only votes.
//
// # Wiring it to raft
//
// The example of the package is a whole cluster. Message by message:
//
//	a request for a vote comes        raft sees it only if Vote reports true; Unpark at Opens, and after a Release
//	MsgTimeoutNow comes               raft sees it only if TimeoutNow reports true; its release travels with the MsgVotes
//	an answer to a candidacy comes    raft sees it only if VoteAnswer reports true
//	campaigning                       only if Campaign returns nil: do not let raft's own timer fire at a follower
//	append, heartbeat, snapshot       HearLeader, then raft, then Observe, then Hear with the request
//	the answers to those              Observe, then Receive with the grant
//	any other call of raft            Observe, before any message that the call produced is sent
//	raft became leader                Elected; Configure and Pending report the applied and the coming configuration
//	sending heartbeat, snapshot       Request, just before the message goes to the transport
//	sending append                    Request as well, unless the leader is Comfortable
//	sending the answers               Grant
//	sending MsgTimeoutNow             Released
//	applying an entry                 Applied; for a configuration, Configure in the same step
//	tick                              Progress; Silent; ToPersist
//	shutdown, failed storage          Stop, then the release to all members
//
// A [Header] carries these parts alongside the raft message. The fields of raft's own messages have no room,
// because raft decodes the context of heartbeats itself. raft needs CheckQuorum, PreVote and ReadOnlySafe. Do
// not use its ReadOnlyLeaseBased: it relies on ticks, and reads stale data after a pause, a restart or a
// transfer.
//
// Changing settings. Duration and drift bound travel in the request and come back in the grant. Each side
// uses the more careful of the two values. So restart one member after the other to change them. A member
// whose version knows no leases grants nothing and does no harm. A member that goes back to such a version
// must first stay down for the length of a promise.
//
// # What it never does
//
// It never reads a clock, starts a goroutine or a timer, takes a lock, draws a random number, sends or stores
// anything. It does not know raft's types, and decides no election. It does not make an action safe that a
// client takes because of a read: use fencing tokens for that. It cannot notice that a virtual machine was
// stopped if neither clock shows it: a caller that learns of it calls [Holder.Renounce]. It relies on a
// member that lost its disk to come back under another id.
//
// It descends from S. LoVerso, "Master Leases for Berkeley DB" (2007). The model of time is that of C. Gray
// and D. Cheriton, "Leases" (SOSP 1989).
package masterlease
