package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// How long the queue may be when a client's command joins it. What makes new work for later is turned away
// first: every lease that is granted will want to be renewed. What the lessor decides, among it that leases
// are being renewed again, is always taken on; and a renewal as such never sits in the queue.
const (
	// MaxQueue bounds the requests that wait to be proposed, and those that wait until the member serves.
	MaxQueue = 1 << 14
	// MaxQueueForWrites is the bound for what adds to the state.
	MaxQueueForWrites = MaxQueue / 4 * 3
	// MaxQueueForGrants is the bound for grants.
	MaxQueueForGrants = MaxQueue / 2
	// maxQueueBytes is from when on the queue is full however few commands are in it.
	maxQueueBytes = 64 << 20
	// maxWaiters bounds the renewals that wait for a decision about their lease. After a restart the first
	// renewal of every lease does, for as long as one write takes.
	maxWaiters = 1 << 18
)

// queueMark returns the length of the queue at which a command is turned away.
func queueMark(c entry.Command) int {
	switch c.(type) {
	case entry.Grant, ownership.Claim:
		return MaxQueueForGrants
	case entry.Revoke, entry.Compact, keyspace.DeleteRequest, ownership.Release, ownership.Revoke, ownership.Unpin:
		return MaxQueue
	}
	return MaxQueueForWrites
}

// turnAway says why a client's command is not taken on; nil if it is.
func (r *Replica) turnAway(c entry.Command) error {
	if r.queueFull(c) {
		return ErrTooManyRequests
	}
	if id, ok := entry.LeaseMade(c); ok && r.leasesFull(id) {
		return ErrTooManyLeases
	}
	if r.lacksMemory(c) {
		return ErrNoMemory
	}
	return nil
}

// leasesFull says whether one more lease would be too many. Grants under way count as if they succeeded, so
// that the limit holds however many come at once; what ends meanwhile makes room only when its end is
// applied. A grant of an id that is taken is let through, to be told that.
func (r *Replica) leasesFull(id lessor.ID) bool {
	if r.cfg.MaxLeases <= 0 || r.lessor.Len()+r.granting < r.cfg.MaxLeases {
		return false
	}
	_, exists := r.lessor.Lookup(id)
	return !exists
}

// underWay counts clients' commands from when they are taken on, with 1, until their fate is known, with -1.
func (r *Replica) underWay(commands []pending, by int) {
	for _, p := range commands {
		if _, ok := entry.LeaseMade(p.Command); ok {
			r.granting += by
		}
		if p.again != nil {
			r.claims(p.again, by)
		}
		if release, ok := p.Command.(ownership.Release); ok {
			r.inflight.releasing[release.Lease] += by
			if r.inflight.releasing[release.Lease] == 0 {
				delete(r.inflight.releasing, release.Lease)
			}
		}
	}
}

// clientBytes returns how much room the clients' commands among these take.
func clientBytes(commands []pending) int {
	n := 0
	for _, p := range commands {
		if p.id != 0 {
			n += p.Size
		}
	}
	return n
}

// DefaultMaxRequestBytes is the size of the largest request, as in etcd.
const DefaultMaxRequestBytes = 3 << 19

// maxCommandBytes bounds one command of a client. Its keys and values were bounded before it came here, so
// this is for what encoding adds to them.
func (r *Replica) maxCommandBytes() int {
	return max(r.cfg.MaxRequestBytes, DefaultMaxRequestBytes) + commandOverhead
}

// commandOverhead is more than encoding adds to the keys and values of the largest txn.
const commandOverhead = 512 << 10
