package permit

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maxRemembered bounds the verdicts that [Renewals] remembers.
const maxRemembered = 1 << 20

// Renewals decides which users may renew which leases. It remembers permissions for as long as the policy and the keys of the
// lease stay the same. Refusals are decided again each time. The zero Renewals is ready for use. It is not safe for concurrent
// use.
type Renewals struct {
	policy *access.Policy
	known  map[lessor.ID]string // the user that may renew the lease under policy
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
		r.policy, r.known = p, nil
	}
	if err := (decision{p, by, leases}).lease(id); err != nil {
		return err
	}
	if r.known == nil || len(r.known) >= maxRemembered {
		r.known = make(map[lessor.ID]string)
	}
	r.known[id] = user
	return nil
}

// Forget forgets what was decided about a lease. The caller calls it when a key is attached to the lease, and when the lease
// ends.
func (r *Renewals) Forget(id lessor.ID) { delete(r.known, id) }
