package permit

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maxRemembered bounds the permissions that [Renewals] remembers, and maxRefused the refusals.
const (
	maxRemembered = 1 << 20
	maxRefused    = 1 << 16
)

// Renewals decides which users may renew which leases. It remembers permissions for as long as the policy and the keys of the
// lease stay the same, and refusals for as long as the policy and the key that refused. The zero Renewals is ready for use. It is
// not safe for concurrent use.
type Renewals struct {
	policy  *access.Policy
	known   map[lessor.ID]string    // the user that may renew the lease under policy
	refused map[renewal]lessor.Item // a key that the user may not write under policy; it may have left the lease since
}

// renewal is what a user asks for.
type renewal struct {
	id   lessor.ID
	user string
}

// Knows reports whether it remembers that a user may renew a lease under a policy. It looks at neither users, rights nor keys,
// and takes no memory: nearly all renewals need no more.
func (r *Renewals) Knows(p *access.Policy, user string, id lessor.ID) bool {
	known, ok := r.known[id]
	return ok && known == user && r.policy == p
}

// Check returns an error of package access if a user may not renew a lease, by the rule for its use in [Check]. A stream of
// renewals outlives changes of the policy, so the auth revision at which the user was identified does not matter. Anybody may
// ask for [lessor.NoLease], which is no lease: members do that on their own behalf, to learn whether a leader answers.
func (r *Renewals) Check(p *access.Policy, user string, id lessor.ID, leases Leases) error {
	if !p.Enabled() || id == lessor.NoLease || r.Knows(p, user, id) {
		return nil
	}
	by := access.Caller{User: user, Revision: p.Revision()}
	if err := p.CheckIdentified(by); err != nil {
		return err
	}
	if r.policy != p {
		r.policy, r.known, r.refused = p, nil, nil
	}
	asked := renewal{id, user}
	if item, ok := r.refused[asked]; ok && leases.LeaseOf(item) == id {
		return access.ErrPermissionDenied
	}
	if item, err := (decision{p, by, leases}).use(id); err != nil {
		r.refuse(asked, item)
		return err
	}
	if r.known == nil || len(r.known) >= maxRemembered {
		r.known = make(map[lessor.ID]string)
	}
	r.known[id] = user
	return nil
}

// refuse remembers which key refused a renewal. Refusals without a key are decided again each time, which looks at no key.
func (r *Renewals) refuse(asked renewal, item lessor.Item) {
	if item == (lessor.Item{}) {
		return
	}
	if r.refused == nil || len(r.refused) >= maxRefused {
		r.refused = make(map[renewal]lessor.Item)
	}
	r.refused[asked] = item
}

// Forget forgets that a user may renew a lease. The caller calls it when a key is attached to the lease, and when the lease
// ends.
func (r *Renewals) Forget(id lessor.ID) { delete(r.known, id) }
