package replica

import (
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// What a driver sees of a replica besides effects. Like Step, these methods are for the goroutine that owns the replica.

// Identity returns the cluster and the member, without revision and term.
func (r *Replica) Identity() Header { return r.identity }

// ClockDomain returns the number of this member's clock domain in its database. Unlike the others, it may be called from
// any goroutine.
func (r *Replica) ClockDomain() uint32 { return r.instants.sequence }

// Space returns the newest reading of how much room there is, and the limits.
func (r *Replica) Space() (Space, SpaceLimits) { return r.space.seen, r.space.limits }

// ClockFault says why the clocks are not trusted; [masterlease.NoFault] if they are.
func (r *Replica) ClockFault(now clock.Instant) masterlease.Fault { return r.holder.Stats(now).Fault }

// Yields returns how often this member handed over the leadership on its own account.
func (r *Replica) Yields() uint64 { return r.counts.Yields }

// Yielding says why this member hands over on its own account, and to which member.
func (r *Replica) Yielding() (reason string, to uint64) {
	return r.yielding.reason.String(), r.transferee
}

// Refused returns how many messages of members were refused, and the member that sent the last of them.
func (r *Replica) Refused() (messages, member uint64) { return r.counts.RejectedPeers, r.refusedLast }

// Place tells where a claim stands in the queue of a name. The error says why the claim is gone, if that is known.
func (r *Replica) Place(name string, lease lessor.ID) (ownership.Place, error) {
	place, err := r.names.Place(name, lease)
	if err != nil {
		return ownership.Place{}, r.whyNot(lease, err)
	}
	return place, nil
}

// Flush writes all that is remembered of names to where [StoredHolder], [ReadHeld] and [ReadHistory] find it.
func (r *Replica) Flush() error { return r.file() }
