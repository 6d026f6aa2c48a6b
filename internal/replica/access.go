package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/permit"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// policy returns the policy as the commands so far left it.
func (r *Replica) policy() *access.Policy {
	if r.applying != nil {
		return r.applying.policy
	}
	return r.access.Load()
}

// permitted returns an error if a caller may not have a command applied at this moment.
func (r *Replica) permitted(by access.Caller, c entry.Command) error {
	return permit.Check(r.policy(), by, c, owned{r})
}

// deny refuses a request at once, without a log entry, if its caller may not make it. It reports whether it did. A member whose
// state may be old leaves the decision to the entry.
func (r *Replica) deny(e Request) bool {
	if _, behind := r.behind(); behind || !r.serving {
		return false
	}
	err := r.permitted(e.Caller, e.Command)
	if err == nil {
		return false
	}
	r.answerWithAuthority(Reply{ID: e.ID, Header: r.Header(), Err: err, Authority: forever})
	return true
}

// applyAccess applies a change of users or roles.
func (r *Replica) applyAccess(c access.Command) (Result, error) {
	a := r.applying
	next, err := a.policy.Apply(c)
	if err != nil {
		return nil, err
	}
	record.PutPolicy(a.writer.Batch(), a.policy, next)
	a.policy = next
	if login, ok := c.(access.Login); ok {
		a.logins = append(a.logins, login)
		return access.LoggedIn{Index: r.applied.Index + 1}, nil
	}
	return nil, nil
}

// recoverAccess reads the policy.
func (r *Replica) recoverAccess() error {
	policy, err := record.LoadPolicy(r.db)
	if err == nil {
		r.access.Store(policy)
	}
	return err
}

// owned is what decisions about callers need to know of leases.
type owned struct{ r *Replica }

func (o owned) Claim(id lessor.ID) (name, creator string, ok bool) { return o.r.names.CreatorOf(id) }
func (o owned) Items(id lessor.ID) []lessor.Item                   { return o.r.lessor.Items(id) }

// byUser returns a claim with its creator, and any other command as it is.
func byUser(c entry.Command, by access.Caller) entry.Command {
	if claim, ok := c.(ownership.Claim); ok && by.User != "" {
		claim.Creator = by.User
		return claim
	}
	return c
}
