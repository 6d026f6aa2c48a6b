package endpoints

import (
	"context"
	"slices"
	"sync"

	"github.com/leasekeeper/leasekeeper/backend"
)

// renewals are the calls of Renew under way, oldest first.
type renewals struct {
	mu       sync.Mutex
	underWay []*Renewal
}

// Renewal is one call of Renew under way, with the endpoints that it has taken.
type Renewal struct {
	leases []backend.Lease
	hedged []*Renewal // for a hedge: the calls that renew some of its leases
	taken  []int64    // the numbers of its endpoints, in order, each once; renewals.mu guards it
}

// BeginRenewal notes that a call of Renew begins. The caller calls end when Renew returns, and does not change leases before.
func (s *Set[W]) BeginRenewal(ctx context.Context, leases []backend.Lease) (r *Renewal, end func()) {
	r = &Renewal{leases: leases}
	s.renewals.mu.Lock()
	defer s.renewals.mu.Unlock()
	if backend.IsHedge(ctx) {
		r.hedged = s.renewals.of(leases)
	}
	s.renewals.underWay = append(s.renewals.underWay, r)
	return r, func() {
		s.renewals.mu.Lock()
		defer s.renewals.mu.Unlock()
		s.renewals.underWay = slices.DeleteFunc(s.renewals.underWay, func(other *Renewal) bool { return other == r })
	}
}

// of returns the calls under way that renew one of these leases. The caller holds r.mu.
func (r *renewals) of(leases []backend.Lease) (found []*Renewal) {
	wanted := make(map[backend.Lease]bool, len(leases))
	for _, l := range leases {
		wanted[l] = true
	}
	for _, other := range r.underWay {
		if slices.ContainsFunc(other.leases, func(l backend.Lease) bool { return wanted[l] }) {
			found = append(found, other)
		}
	}
	return found
}

// Take returns the endpoint for the next attempt of a call of Renew, and its number for Leave. own has the numbers of earlier
// attempts of the call: the oldest that is under way, then the newest. The first attempt goes to the preferred endpoint, and
// a later one to the next after the newest.
//
// Take avoids endpoints of attempts under way while there is another. In this order it avoids:
//   - the endpoint of the oldest attempt of this call
//   - the first endpoints of the calls that it hedges
//   - the later endpoints of those calls
func (s *Set[W]) Take(r *Renewal, own ...int64) (W, int64) {
	s.renewals.mu.Lock()
	defer s.renewals.mu.Unlock()
	from := s.preferred.Load()
	if len(own) > 0 {
		from = own[len(own)-1] + 1
	}
	avoided := slices.Clone(own[:min(1, len(own))])
	for _, other := range r.hedged {
		avoided = append(avoided, other.taken[:min(1, len(other.taken))]...)
	}
	for _, other := range r.hedged {
		avoided = append(avoided, other.taken[min(1, len(other.taken)):]...)
	}
	n := s.besides(from, avoided)
	if !slices.Contains(r.taken, n) {
		r.taken = append(r.taken, n)
	}
	return s.endpoints[n%int64(len(s.endpoints))], n
}

// besides returns the first number from one on whose endpoint is not avoided. The elements of avoided are in the order of
// their importance. If they leave no endpoint, the last of them is dropped.
func (s *Set[W]) besides(from int64, avoided []int64) int64 {
	all := int64(len(s.endpoints))
	for ; len(avoided) > 0; avoided = avoided[:len(avoided)-1] {
		for n := from; n < from+all; n++ {
			if !slices.ContainsFunc(avoided, func(a int64) bool { return a%all == n%all }) {
				return n
			}
		}
	}
	return from
}
