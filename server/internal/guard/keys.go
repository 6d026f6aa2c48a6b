package guard

import (
	"context"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/permit"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
)

// Keys is the member of the front of etcd's API. It checks the rights of the users on whose behalf that front calls it. The
// methods that it does not have itself need no check beyond [Guard.Method].
type Keys struct {
	etcdapi.Member
	*Guard
}

// Put is checked when it is applied.
func (k Keys) Put(ctx context.Context, req keyspace.PutRequest) (h replica.Header, res keyspace.PutResult, err error) {
	if ctx, err = k.change(ctx); err != nil {
		return h, res, err
	}
	return k.Member.Put(ctx, req)
}

// DeleteRange is checked when it is applied.
func (k Keys) DeleteRange(ctx context.Context, req keyspace.DeleteRequest) (h replica.Header, res keyspace.DeleteResult, err error) {
	if ctx, err = k.change(ctx); err != nil {
		return h, res, err
	}
	return k.Member.DeleteRange(ctx, req)
}

// Range needs the right to read the keys.
func (k Keys) Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (h replica.Header, res keyspace.RangeResult, err error) {
	may := func(p *access.Policy, c access.Caller) error { return p.Check(c, req.Key, req.End, access.Read) }
	err = k.read(ctx, !serializable, may, func() (err error) {
		h, res, err = k.Member.Range(ctx, req, serializable)
		return err
	})
	if err != nil {
		return replica.Header{}, keyspace.RangeResult{}, err
	}
	return h, res, nil
}

// Txn needs the rights for both branches. One that changes something is checked when it is applied.
func (k Keys) Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (h replica.Header, res keyspace.TxnResult, err error) {
	if !req.ReadOnly() {
		if ctx, err = k.change(ctx); err != nil {
			return h, res, err
		}
		return k.Member.Txn(ctx, req, serializable)
	}
	may := func(p *access.Policy, c access.Caller) error {
		if p.Enabled() && c.Revision != 0 && c.Revision < p.Revision() {
			return access.ErrOldRevision // also where there is nothing to check, as in etcd
		}
		return permit.Check(p, c, req, nil) // nothing attaches a key
	}
	err = k.read(ctx, !serializable, may, func() (err error) {
		h, res, err = k.Member.Txn(ctx, req, serializable)
		return err
	})
	if err != nil {
		return replica.Header{}, keyspace.TxnResult{}, err
	}
	return h, res, nil
}

// Grant needs a user, which is checked when it is applied.
func (k Keys) Grant(ctx context.Context, id lessor.ID, ttl time.Duration) (h replica.Header, granted replica.Granted, err error) {
	if ctx, err = k.change(ctx); err != nil {
		return h, granted, err
	}
	return k.Member.Grant(ctx, id, ttl)
}

// Revoke needs the right to write all attached keys, which is checked when it is applied.
func (k Keys) Revoke(ctx context.Context, id lessor.ID) (h replica.Header, err error) {
	if ctx, err = k.act(ctx); err != nil {
		return h, err
	}
	return k.Member.Revoke(ctx, id)
}

// ChangeAccess needs the role root, which is checked when the change is applied.
func (k Keys) ChangeAccess(ctx context.Context, c access.Command) (h replica.Header, err error) {
	if ctx, err = k.act(ctx); err != nil {
		return h, err
	}
	return k.Member.ChangeAccess(ctx, c)
}

// Compact needs the role root, which [Guard.Method] has checked.
func (k Keys) Compact(ctx context.Context, rev int64, physical bool) (h replica.Header, err error) {
	if ctx, err = k.act(ctx); err != nil {
		return h, err
	}
	return k.Member.Compact(ctx, rev, physical)
}

// ChangeMembers needs the role root, which [Guard.Method] has checked.
func (k Keys) ChangeMembers(ctx context.Context, c roster.Change) (members []roster.Member, h replica.Header, err error) {
	if ctx, err = k.act(ctx); err != nil {
		return nil, h, err
	}
	return k.Member.ChangeMembers(ctx, c)
}

// Renew needs the right to write all keys that are attached to each lease. The leader checks that.
func (k Keys) Renew(ctx context.Context, ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) (err error) {
	if ctx, err = k.renewal(ctx); err != nil {
		return err
	}
	return k.Member.Renew(ctx, ids, answer)
}

// TimeToLive needs a user, and the right to read all attached keys if the answer names them.
func (k Keys) TimeToLive(ctx context.Context, id lessor.ID, items bool) (h replica.Header, status replica.LeaseStatus, err error) {
	err = k.read(ctx, true, identified, func() (err error) {
		h, status, err = k.Member.TimeToLive(ctx, id, items)
		return err
	})
	if err == nil && items {
		err = k.verdict(ctx, mayReadAll(status.Items))
	}
	if err != nil {
		return h, replica.LeaseStatus{}, err
	}
	return h, status, nil
}

// mayReadAll needs the right to read some keys, or the role root.
func mayReadAll(items []lessor.Item) check {
	return func(p *access.Policy, c access.Caller) error {
		if p.CheckRoot(c) == nil {
			return nil
		}
		for _, item := range items {
			if err := p.Check(c, []byte(item.Key), nil, access.Read); err != nil {
				return err
			}
		}
		return nil
	}
}

// Leases needs the right to read all keys that are attached to any lease, as in etcd.
func (k Keys) Leases(ctx context.Context) (h replica.Header, ends []lessor.End, err error) {
	err = k.read(ctx, true, identified, func() (err error) {
		h, ends, err = k.Member.Leases(ctx)
		return err
	})
	if err != nil || k.verdict(ctx, root) == nil {
		return h, ends, err
	}
	for _, end := range ends {
		// A lease that has ended meanwhile has no keys.
		_, status, err := k.Member.TimeToLive(ctx, end.ID, true)
		if err != nil && !isGone(err) {
			return h, nil, err
		}
		if err := k.verdict(ctx, mayReadAll(status.Items)); err != nil {
			return h, nil, err
		}
	}
	return h, ends, nil
}
