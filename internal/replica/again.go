package replica

import (
	"bytes"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// inflight are the claims and releases on their way into the log and through it.
type inflight struct {
	// releasing has the leases that are being released, and by how many releases.
	releasing map[lessor.ID]int
	// claiming has the claims by the lease that they are to make.
	claiming   map[lessor.ID]*again
	spareAgain []*again // len ≤ maxSpare
}

func newInflight() inflight {
	return inflight{releasing: make(map[lessor.ID]int), claiming: make(map[lessor.ID]*again)}
}

// again are requests for a claim that is on its way into the log and through it already: a client that waits for
// too long asks once more. They get the same answer, and no entry: behind the end of the first one it would grant
// again what the client was told of.
type again struct {
	claim ownership.Claim
	ids   []uint64 // of the Requests; len ≤ maxAgain
}

// maxAgain bounds how often a claim can be asked for while it is under way.
const maxAgain = 64

func (a *again) of(c ownership.Claim) bool {
	b := a.claim
	return b.Lease == c.Lease && b.TTL == c.TTL && b.Name == c.Name && b.Wait == c.Wait && bytes.Equal(b.Holder, c.Holder)
}

// joins has a request for a claim that is under way already wait for what comes of that.
func (r *Replica) joins(request uint64, claim ownership.Claim) bool {
	first := r.inflight.claiming[claim.Lease]
	if first == nil || !first.of(claim) {
		return false
	}
	if len(first.ids) < maxAgain {
		first.ids = append(first.ids, request)
	} else {
		r.emit(Reply{ID: request, Err: ErrTooManyRequests, Authority: forever})
	}
	return true
}

// others are the requests for a command but the first.
func (p pending) others() []uint64 {
	if p.again == nil {
		return nil
	}
	return p.again.ids
}

// claims counts a claim among those under way, with 1, or no more, with -1.
func (r *Replica) claims(a *again, by int) {
	if by > 0 {
		r.inflight.claiming[a.claim.Lease] = a
	} else if r.inflight.claiming[a.claim.Lease] == a {
		delete(r.inflight.claiming, a.claim.Lease)
	}
}

// newAgain returns one that nobody has joined.
func (f *inflight) newAgain(claim ownership.Claim) *again {
	if last := len(f.spareAgain) - 1; last >= 0 {
		a := f.spareAgain[last]
		f.spareAgain = f.spareAgain[:last]
		a.claim = claim
		return a
	}
	return &again{claim: claim}
}

// recycle takes the memory back of what nobody waits for any more. Those that were joined are rare, and are left alone.
func (f *inflight) recycle(p pending) {
	if p.again != nil && len(p.again.ids) == 0 && len(f.spareAgain) < maxSpare {
		p.again.claim = ownership.Claim{}
		f.spareAgain = append(f.spareAgain, p.again)
	}
}

// maxSpare bounds what is kept to be used again.
const maxSpare = 1 << 10
