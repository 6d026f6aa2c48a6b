// Package masterlease is the lease of a Raft leader: the other members' promises not to help elect another, and the
// authority that follows from a quorum of them to answer reads and renewals from memory, without asking anyone.
//
// # What it promises
//
//   - While [Authority] holds at a leader, no leader of a later term can be elected. So what the leader reads from its
//     applied state is the newest there is, and two members never have authority at the same moment.
//   - That needs no synchronized clocks. Only lengths of time and echoed stamps cross the network. It needs that on every
//     member, over the length of a promise, at least one of the two clocks of a [clock.Instant] runs at a rate within
//     the drift bound.
//   - Messages may be lost, delayed, doubled and reordered, members may crash and restart, at any moment. None of
//     that endangers the promise; and late copies of old messages do not keep a group leaderless for longer.
//   - A promise is not longer than asked for, so with one shorter than the election timeout a failover takes no longer
//     than without leases. A planned handover, a clean stop and a step-down wait for nothing.
//   - A leader whose disk or commit hangs, or whose disk is much slower than the others', lets its authority go
//     ([Holder.Progress]).
//   - A clock that breaks its bound is noticed in three ways ([Fault]), and then there is no authority.
//
// # How it works
//
// Two pure state machines. Both take the time as an argument, read after the message left its queue.
//
// [Grantor], on every member: after raft has processed an append, a heartbeat or a snapshot of the leader it follows,
// the member promises that leader the time it asked for, inflated by the drift bound, from now (Hear). The answer echoes
// the newest stamp (Grant). Until the promise has ended on both clocks the member does not vote, pre-vote or campaign;
// requests for votes are parked and come back when the gate opens (Vote, Unpark), unless a promise was extended meanwhile
// and they are of no use any more. Only a newer stamp extends a promise.
//
// [Holder], on the leader: it stamps what it sends (Request) and keeps of each voter the newest stamp that came back
// (Receive). The stamp plus the time asked for, deflated by the bound, is how long that voter's promise may be counted
// on: it promised later than the stamp was taken, and for longer. The end of what a quorum has promised is the end of the
// authority; in joint consensus of both quorums, always under the applied configuration. The leader itself counts as
// promised for ever, where it is a voter: it cannot vote for another without leading no more. Learners promise, and are
// not counted. There is no authority before an entry of the own term was applied.
//
// Check after the act. Read, or move a deadline, on a state with everything that was committed when the request came.
// Then load the authority, then read the clock, then answer ([Holder.Check]), and look at the clock again just before
// the answer is sent. If it does not hold, one round of messages shared by all who wait confirms them (raft's ReadIndex),
// and renews the lease on the way.
//
// Epochs. A leader that hands over withdraws its authority first, and then sends a [Release] with the order to campaign,
// so that nobody need wait. If the handover is aborted the release may still be under way, for ever. So the leader goes on
// in a new epoch, to which that release does not apply, and nothing that was granted before counts any more.
//
// Starting. A member that starts has forgotten what it promised, so its vote hold-off lasts for the longest it ever promised, and
// no release shortens that. The length is kept on stable storage: a promise longer than any on record is not made before
// the record is written ([Grantor.ToPersist]). Members that found a cluster by explicit order need not wait.
//
// A later leader is accepted at once, whatever was promised to an earlier one. A quorum of voters must have been free to
// elect it, and one of them is in every quorum that the earlier one can count on. Only votes are held back.
//
// # Wiring it to raft
//
// The example of the package is a whole group. Message by message:
//
//	a request for a vote comes        raft sees it only if Vote says so; Unpark at Opens, and after a Release
//	MsgTimeoutNow comes               raft sees it only if TimeoutNow says so; its release goes on with the MsgVotes
//	an answer to one's candidacy      raft sees it only if VoteAnswer says so
//	campaigning                       only if Campaign says so: members that follow must not let raft's own timer fire
//	append, heartbeat, snapshot       HearLeader, then raft, then Observe, then Hear with the request beside it
//	the answers to those              Observe, Receive with the grant beside it
//	any other call of raft            Observe, before anything that it produced is sent
//	raft became leader                Elected; Configure and Pending tell what is applied and what is on its way
//	sending heartbeat, snapshot       Request, just before it is handed to the transport
//	sending append                    Request as well, unless the leader is Comfortable
//	sending the answers               Grant
//	sending MsgTimeoutNow             Released
//	applying an entry                 Applied; of a configuration, Configure in the same step
//	tick                              Progress; Silent; ToPersist
//	shutdown, failed storage          Stop, then the release to everybody
//
// A [Header] carries these beside the raft message, whose own fields have no room: raft decodes the context of heartbeats
// itself. raft wants CheckQuorum, PreVote and ReadOnlySafe; its ReadOnlyLeaseBased relies on ticks, and reads stale data
// after a pause, a restart or a transfer.
//
// Changing numbers. Duration and bound travel in the request and come back in the grant, and each side takes the more
// careful, so they can be changed by restarting one member after the other. A member that knows nothing of leases grants
// nothing and harms nobody, but one that is put back to such a version has to stay down for the length of a promise.
//
// # What it never does
//
// It never reads a clock, starts a goroutine or a timer, takes a lock, draws a random number, sends or stores anything. It
// does not know raft's types. It decides no election. It does not make an action safe that is taken on what was read: for
// that there are fencing tokens. It cannot see that a virtual machine was stopped if neither clock shows it; who learns
// of it calls [Holder.Renounce]. It relies on a member that lost its disk coming back under another id.
//
// It descends from S. LoVerso, "Master Leases for Berkeley DB" (2007); the model of time is that of C. Gray and D.
// Cheriton, "Leases" (SOSP 1989).
package masterlease
