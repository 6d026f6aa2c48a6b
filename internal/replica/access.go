package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/permit"
	"github.com/leasekeeper/leasekeeper/internal/replica/quota"
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

// audits returns the version whose acts the audit log may record; 0 if it may only begin with a change of users.
func (r *Replica) audits() gate.Version { return r.gates.Acts(r.cfg.Uses, r.others) }

// actOf returns the act that a command is which is about to be applied.
func (r *Replica) actOf(by access.Caller, c entry.Command) (act audit.Act, audited bool) {
	if audit.MayAct(by, c) { // otherwise owned would be allocated for each command
		return audit.Of(c, by, r.policy(), r.owned())
	}
	return audit.Act{}, false
}

// logAct writes an act that was carried out into the audit log, in the batch being applied.
func (r *Replica) logAct(by access.Caller, wall int64, act audit.Act) {
	r.acts.Append(r.applying.writer.Batch(), audit.Record{Index: r.applied.Index + 1, Wall: wall, By: by, Act: act})
}

// exhausted returns an error if a command would give its caller more than the caller's quota allows.
func (r *Replica) exhausted(by access.Caller, c entry.Command) error {
	return r.quotas.Check(r.policy(), by, c, r.lessor)
}

// mayRenew returns an error if a user may not renew a lease.
func (r *Replica) mayRenew(user string, id lessor.ID) error {
	if p := r.policy(); p.Enabled() && !r.renewals.Knows(p, user, id) { // as above
		return r.renewals.Check(p, user, id, r.owned())
	}
	return nil
}

// deny refuses a request at once, without a log entry, for a reason that decide finds. It reports whether it did. A member
// whose state may be old leaves the decision to the entry.
func (r *Replica) deny(e Request, decide func(access.Caller, entry.Command) error) bool {
	if _, behind := r.behind(); behind || !r.serving {
		return false
	}
	err := decide(e.Caller, e.Command)
	if err != nil {
		r.answerWithAuthority(Reply{ID: e.ID, Header: r.Header(), Err: err, Authority: forever})
	}
	return err != nil
}

// Usage returns how much a user owns by what is applied. Like Step, it is for the goroutine that owns the replica.
func (r *Replica) Usage(user string) quota.Usage { return r.quotas.Usage(user) }
