package permit

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Leases is what decisions about leases need to know.
type Leases interface {
	// Claim returns the name for which a claim made a lease, and the user that claimed it. ok is false if no claim made it, or
	// there is no such lease.
	Claim(id lessor.ID) (name, creator string, ok bool)
	// Items returns the keys that are attached to a lease; none if there is no such lease.
	Items(id lessor.ID) []lessor.Item
	// LeaseOf returns the lease to which a key is attached, [lessor.NoLease] if there is none.
	LeaseOf(lessor.Item) lessor.ID
}

// Owned are the leases of a member.
type Owned struct {
	Names  *ownership.Registry
	Lessor *lessor.Lessor
}

// Claim is part of [Leases].
func (o Owned) Claim(id lessor.ID) (name, creator string, ok bool) { return o.Names.CreatorOf(id) }

// Items is part of [Leases].
func (o Owned) Items(id lessor.ID) []lessor.Item { return o.Lessor.Items(id) }

// LeaseOf is part of [Leases].
func (o Owned) LeaseOf(item lessor.Item) lessor.ID { return o.Lessor.GetLease(item) }

// Check returns an error of package access if a caller may not have a command applied. The result depends on the arguments
// alone, so all members decide alike.
func Check(p *access.Policy, by access.Caller, c entry.Command, leases Leases) error {
	if !p.Enabled() {
		return nil
	}
	d := decision{p, by, leases}
	switch c := c.(type) {
	case keyspace.PutRequest:
		return d.put(c)
	case keyspace.DeleteRequest:
		return d.delete(c)
	case keyspace.TxnRequest:
		return d.txn(c)
	case entry.Grant:
		return p.CheckIdentified(by)
	case entry.Revoke:
		return firstError(p.CheckIdentified(by), func() error { return d.lease(c.Lease) })
	case entry.Compact, entry.Expire, entry.Checkpoint:
		return nil // the members decide these for themselves, and the server checks a client's Compact
	case access.Login:
		return nil // nobody is identified before
	case access.Command:
		return p.CheckRoot(by)
	}
	return d.names(c)
}

// firstError returns an error if there is one, and otherwise that of the next decision.
func firstError(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// decision decides by one policy about one caller.
type decision struct {
	policy *access.Policy
	by     access.Caller
	leases Leases
}

func (d decision) put(c keyspace.PutRequest) error {
	if err := d.policy.Check(d.by, c.Key, nil, access.Write); err != nil {
		return err
	}
	if c.Lease != 0 {
		if err := d.lease(lessor.ID(c.Lease)); err != nil {
			return err
		}
	}
	if c.PrevKV {
		return d.policy.Check(d.by, c.Key, nil, access.Read)
	}
	return nil
}

func (d decision) delete(c keyspace.DeleteRequest) error {
	if err := d.policy.Check(d.by, c.Key, c.End, access.Write); err != nil || !c.PrevKV {
		return err
	}
	return d.policy.Check(d.by, c.Key, c.End, access.Read)
}

// txn looks at both branches, as etcd does: which one is taken must not be known to a caller who may not take the other. A
// mark that a client replaces by its name needs the right over the name, and none over the key.
func (d decision) txn(c keyspace.TxnRequest) error {
	if name, _, ok := entry.MarkAct(c, d.by); ok {
		return d.policy.CheckName(d.by, name, access.Administer)
	}
	for _, compare := range c.Compare {
		if err := d.policy.Check(d.by, compare.Key, compare.End, access.Read); err != nil {
			return err
		}
	}
	return firstError(d.branch(c.Success), func() error { return d.branch(c.Failure) })
}

func (d decision) branch(ops []keyspace.TxnOp) error {
	for _, op := range ops {
		var err error
		switch op := op.(type) {
		case keyspace.RangeRequest:
			err = d.policy.Check(d.by, op.Key, op.End, access.Read)
		case keyspace.PutRequest:
			err = d.put(op)
		case keyspace.DeleteRequest:
			err = d.delete(op)
		case keyspace.TxnRequest:
			err = d.txn(op)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lease decides whether the caller may use a lease: attach keys to it, or end it.
func (d decision) lease(id lessor.ID) error {
	_, err := d.use(id)
	return err
}

// use is lease. It also returns the key that refuses, if one does.
func (d decision) use(id lessor.ID) (refuses lessor.Item, err error) {
	if d.policy.CheckRoot(d.by) == nil {
		return refuses, nil
	}
	if name, creator, ok := d.leases.Claim(id); ok {
		return refuses, d.claim(name, creator)
	}
	for _, item := range d.leases.Items(id) {
		if err := d.policy.Check(d.by, []byte(item.Key), nil, access.Write); err != nil {
			return item, err
		}
	}
	return refuses, nil
}

// claim decides whether the caller may use what a user has claimed.
func (d decision) claim(name, creator string) error {
	if err := d.policy.CheckName(d.by, name, access.Hold); err != nil {
		return err
	}
	if creator != d.by.User && d.policy.CheckRoot(d.by) != nil {
		return access.ErrPermissionDenied
	}
	return nil
}

// names decides about commands on names.
func (d decision) names(c entry.Command) error {
	switch c := c.(type) {
	case ownership.Claim:
		return d.holding(c.Name, c.Lease)
	case ownership.Release:
		return d.holding(c.Name, c.Lease)
	case ownership.Finish:
		return d.holding(c.Name, c.Lease)
	case ownership.RaiseMark:
		return d.holding(c.Name, c.Lease)
	case ownership.Transfer:
		if d.policy.CheckName(d.by, c.Name, access.Administer) == nil {
			return nil
		}
		return d.holding(c.Name, c.Lease)
	case ownership.Prefer:
		return d.policy.CheckName(d.by, c.Name, access.Administer)
	case ownership.Revoke:
		return d.policy.CheckName(d.by, c.Name, access.Administer)
	case ownership.Pin:
		return d.policy.CheckName(d.by, c.Name, access.Administer)
	case ownership.Unpin:
		return d.policy.CheckName(d.by, c.Name, access.Administer)
	}
	return d.policy.CheckRoot(d.by) // a command that this function was not taught
}

// holding decides whether the caller may hold a name by a lease, which need not exist yet. A lease that exists must be the
// caller's own claim of this name.
func (d decision) holding(name string, id lessor.ID) error {
	if err := d.policy.CheckName(d.by, name, access.Hold); err != nil {
		return err
	}
	if of, creator, ok := d.leases.Claim(id); ok {
		return d.claim(of, creator)
	}
	return nil
}
