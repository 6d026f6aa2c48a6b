package replica

import (
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// These methods show a driver what effects do not. Like Step, they are for the goroutine that owns the replica.

// Identity returns the cluster and the member, without revision and term.
func (r *Replica) Identity() Header { return r.identity }

// ClockDomain returns the number of this member's clock domain in its database. Unlike the other methods, any
// goroutine may call it.
func (r *Replica) ClockDomain() uint32 { return r.instants.Domain() }

// Space returns the newest reading of the space, and the limits.
func (r *Replica) Space() (Space, SpaceLimits) { return Space(r.space.Seen), r.space.Limits }

// ClockFault returns why the clocks are not trusted; [masterlease.NoFault] if they are.
func (r *Replica) ClockFault(now clock.Instant) masterlease.Fault { return r.holder.Stats(now).Fault }

// Yields returns how often this member has decided to hand over the leadership.
func (r *Replica) Yields() uint64 { return r.counts.Yields }

// Yielding returns why this member hands over by its own decision, and to which member.
func (r *Replica) Yielding() (reason string, to uint64) {
	return r.yielding.Reason().String(), r.transferee
}

// Refused returns how many messages of members were rejected, and the member that sent the last of them.
func (r *Replica) Refused() (messages, member uint64) { return r.counts.RejectedPeers, r.refusedLast }

// Place returns the place of a claim in the queue of a name. The error says why the claim is gone, if that is known.
func (r *Replica) Place(name string, lease lessor.ID) (ownership.Place, error) {
	place, err := r.names.Place(name, lease)
	if err != nil {
		return ownership.Place{}, r.whyNot(lease, err)
	}
	return place, nil
}

// Flush writes all buffered records to their keys in the database, where readers find them.
func (r *Replica) Flush() error {
	if r.installing {
		return nil
	}
	return r.buffer.Flush(r.db)
}

// remove deletes a record: in the buffer if it is there, and in the batch otherwise.
func (r *Replica) remove(key []byte) {
	if !r.buffer.Delete(key) {
		record.Remove(r.applying.writer.Batch(), key)
	}
}

// loadRecord is [record.Load] for records that may be in the buffer.
func (r *Replica) loadRecord(key []byte, m proto.Message) (bool, error) {
	switch {
	case r.buffer.Has(key):
		return r.buffer.Load(key, m)
	case r.applying != nil:
		return r.applying.load(key, m)
	}
	return record.Load(r.db, key, m)
}

// Members returns the members that this member has applied, in order of ids. The caller must not modify them.
func (r *Replica) Members() []roster.Member { return r.list().Members() }

// Removed reports whether this member has applied its own removal from the cluster.
func (r *Replica) Removed() bool { return r.roster.Removed(r.identity.MemberID) }
