package intake

import (
	"bytes"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maxJoined bounds how often a claim can be requested while it is in flight.
const maxJoined = 64

// maxSpare bounds what is kept for reuse.
const maxSpare = 1 << 10

// inFlight are the claims and releases on their way into the log and through it.
type inFlight struct {
	releasing map[lessor.ID]int            // by lease: how many releases of it
	claiming  map[lessor.ID]*claimInFlight // by the lease that the claim makes
	spares    []*claimInFlight             // for reuse; len ≤ maxSpare
}

func newInFlight() inFlight {
	return inFlight{releasing: make(map[lessor.ID]int), claiming: make(map[lessor.ID]*claimInFlight)}
}

// claimInFlight is a claim on its way through the log, with further requests for it: a client that waits for too long
// asks again. These get the same answer, and no entry of their own. An entry behind the end of the first claim would
// grant again the lease that the client knows of.
type claimInFlight struct {
	claim ownership.Claim
	user  string   // on whose behalf it was requested first
	ids   []uint64 // of the requests; len ≤ maxJoined
}

// of reports whether a claim of a user is the same.
func (d *claimInFlight) of(c ownership.Claim, user string) bool {
	b := d.claim
	return d.user == user && b.Lease == c.Lease && b.TTL == c.TTL && b.Name == c.Name && b.Wait == c.Wait && b.Priority == c.Priority && bytes.Equal(b.Holder, c.Holder)
}

// Join lets a request for a claim that is already in flight wait for the answer of the first. joined is false if no such
// claim is in flight. full is true if too many requests wait for it already; then this one does not.
func (q *Queue) Join(request uint64, claim ownership.Claim, user string) (joined, full bool) {
	first := q.inFlight.claiming[claim.Lease]
	if first == nil || !first.of(claim, user) {
		return false, false
	}
	if len(first.ids) >= maxJoined {
		return false, true
	}
	first.ids = append(first.ids, request)
	return true, false
}

// Releasing reports whether a release of the lease is in flight.
func (q *Queue) Releasing(id lessor.ID) bool { return q.inFlight.releasing[id] > 0 }

// Duplicates returns the further requests that get the answer of this command.
func (p Pending) Duplicates() []uint64 {
	if p.flight == nil {
		return nil
	}
	return p.flight.ids
}

// count counts a claim or a release: by is 1 or -1.
func (f *inFlight) count(p Pending, by int) {
	if d := p.flight; d != nil && by > 0 {
		f.claiming[d.claim.Lease] = d
	} else if d != nil && f.claiming[d.claim.Lease] == d {
		delete(f.claiming, d.claim.Lease)
	}
	if release, ok := p.Command.(ownership.Release); ok {
		f.releasing[release.Lease] += by
		if f.releasing[release.Lease] == 0 {
			delete(f.releasing, release.Lease)
		}
	}
}

// newClaim returns a claim that no further request has joined.
func (f *inFlight) newClaim(claim ownership.Claim, user string) *claimInFlight {
	if last := len(f.spares) - 1; last >= 0 {
		d := f.spares[last]
		f.spares = f.spares[:last]
		d.claim, d.user = claim, user
		return d
	}
	return &claimInFlight{claim: claim, user: user}
}

// recycle keeps the memory of a claim that is answered for reuse. Claims with duplicates are rare, and are left alone.
func (f *inFlight) recycle(p Pending) {
	if p.flight != nil && len(p.flight.ids) == 0 && len(f.spares) < maxSpare {
		p.flight.claim, p.flight.user = ownership.Claim{}, ""
		f.spares = append(f.spares, p.flight)
	}
}
