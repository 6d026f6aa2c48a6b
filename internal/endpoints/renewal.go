package endpoints

import (
	"context"
	"slices"
	"sync"

	"github.com/leasekeeper/leasekeeper/backend"
)

// renewals are the calls of a backend's Renew under way, oldest first.
type renewals struct {
	mu       sync.Mutex
	underWay []*Renewal
}

// Renewal is one call of a backend's Renew under way, and which endpoints it has taken.
type Renewal struct {
	leases []backend.Lease
	hedged []*Renewal // of a hedge: the calls under way that renew some of its leases
	taken  []int64    // the numbers of the endpoints, in order, each once; guarded by the lock of renewals
}

// BeginRenewal is at the start of every call of Renew. The caller calls end when it returns, and leaves leases as they
// are until then.
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

// of returns the calls under way that renew one of these leases. r.mu is held.
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

// Take returns the endpoint for the next attempt of a call of Renew, and its number for Leave. own are the numbers of
// the caller's attempts so far that matter: the oldest that goes on, then the newest. The first attempt goes to the
// preferred endpoint, and a later one to the next after the newest. An endpoint that an attempt under way has taken is
// passed over while there is another: most of all the one of the caller's oldest attempt, then the ones that the calls
// began with that a hedge hedges, then those that they took later.
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

// besides returns the first number from one on whose endpoint is not avoided. What is avoided most comes first: if that
// leaves no endpoint, the last of it is not avoided.
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
