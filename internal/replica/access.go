package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/permit"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// policy returns the policy as the commands so far left it.
func (r *Replica) policy() *access.Policy {
	if r.applying != nil {
		return r.applying.access.Policy
	}
	return r.access.Load()
}

// owned is what decisions about callers need to know of leases.
func (r *Replica) owned() permit.Owned { return permit.Owned{Names: r.names, Lessor: r.lessor} }

// permitted returns an error if a caller may not have a command applied at this moment.
func (r *Replica) permitted(by access.Caller, c entry.Command) error {
	if p := r.policy(); p.Enabled() { // otherwise owned would be allocated for each command
		return permit.Check(p, by, c, r.owned())
	}
	return nil
}

// mayRenew returns an error if a user may not renew a lease.
func (r *Replica) mayRenew(user string, id lessor.ID) error {
	if p := r.policy(); p.Enabled() {
		return r.renewals.Check(p, user, id, r.owned())
	}
	return nil
}

// deny refuses a request at once, without a log entry, if its caller may not make it. It reports whether it did. A member whose
// state may be old leaves the decision to the entry.
func (r *Replica) deny(e Request) bool {
	if _, behind := r.behind(); behind || !r.serving {
		return false
	}
	err := r.permitted(e.Caller, e.Command)
	if err != nil {
		r.answerWithAuthority(Reply{ID: e.ID, Header: r.Header(), Err: err, Authority: forever})
	}
	return err != nil
}
