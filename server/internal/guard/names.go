package guard

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/namesapi"
)

// Names is the member of the front of names. It checks the rights of the users on whose behalf that front calls it. Commands
// on names are checked when they are applied.
type Names struct {
	namesapi.Member
	*Guard
}

// permissionKey is the key of a permission in a context.
type permissionKey struct{}

// permission is a verdict in favour of a request.
type permission struct {
	may      check
	revision uint64 // the auth revision by which it was decided; 0 if access was not enabled
}

// permissionOf returns what [Guard.MayName] has permitted. Without that, a request needs the role root.
func permissionOf(ctx context.Context) permission {
	if p, ok := ctx.Value(permissionKey{}).(permission); ok {
		return p
	}
	return permission{may: root}
}

// MayName decides whether the user of a request has some rights over a name. With the context that it returns, a front may
// read and change keys for itself ([Names.Range], [Names.Txn]), as long as the rights of users do not change.
func (g *Guard) MayName(ctx context.Context, name string, rights access.Rights) (context.Context, error) {
	may := func(p *access.Policy, c access.Caller) error { return p.CheckName(c, name, rights) }
	permitted := permission{may: may}
	err := g.admit(ctx, true, func(p *access.Policy, c access.Caller) error {
		permitted.revision = p.Revision()
		return may(p, c)
	})
	return context.WithValue(ctx, permissionKey{}, permitted), err
}

// MayNames decides whether the user of a request has some rights over all names with a prefix.
func (g *Guard) MayNames(ctx context.Context, prefix string, rights access.Rights) error {
	return g.admit(ctx, true, func(p *access.Policy, c access.Caller) error { return p.CheckNames(c, prefix, rights) })
}

// ReadPolicy returns the policy after everything that was acknowledged before, and the user of the request. The caller decides
// what that user may see of it.
func (g *Guard) ReadPolicy(ctx context.Context) (*access.Policy, access.Caller, error) {
	if err := g.cfg.Member.Confirm(ctx); err != nil {
		return nil, access.Caller{}, err
	}
	caller, err := g.Caller(ctx)
	return g.cfg.Member.Access(), caller, err
}

// ChangeAccess needs the role root, which is checked when the change is applied.
func (n Names) ChangeAccess(ctx context.Context, c access.Command) (h replica.Header, err error) {
	if ctx, err = n.act(ctx); err != nil {
		return h, err
	}
	return n.Member.ChangeAccess(ctx, c)
}

// Range reads for the front itself. The context is that of [Guard.MayName]. If the user has lost the rights meanwhile, the
// client gets nothing of what was read.
func (n Names) Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (replica.Header, keyspace.RangeResult, error) {
	h, res, err := n.Member.Range(ctx, req, serializable)
	if refused := n.verdict(ctx, permissionOf(ctx).may); refused != nil {
		return replica.Header{}, keyspace.RangeResult{}, refused
	}
	return h, res, err
}

// Txn changes a key for the front itself. The context is that of [Guard.MayName], or of the server's own work. The change is
// refused when it is applied if the policy has changed since MayName. The user needs no right over the key.
func (n Names) Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (h replica.Header, res keyspace.TxnResult, err error) {
	if _, _, ok := entry.ReplacedMark(req); ok {
		ctx, err = n.markAct(ctx)
	} else if p := permissionOf(ctx); p.revision > 0 {
		ctx = node.As(ctx, access.Caller{User: access.Root, Revision: p.revision})
	} else {
		ctx, err = n.change(ctx)
	}
	if err != nil {
		return h, res, err
	}
	return n.Member.Txn(ctx, req, serializable)
}

// markAct is act for a mark that is replaced. The caller has the revision by which [Guard.MayName] decided: a member may have
// to apply the change as root, and refuses it then if the policy has changed since.
func (n Names) markAct(ctx context.Context) (context.Context, error) {
	caller, err := n.Caller(ctx)
	if err != nil {
		return ctx, err
	}
	return node.As(ctx, access.Caller{User: caller.User, Revision: permissionOf(ctx).revision, Origin: admission.OriginOf(ctx)}), nil
}

// Renew needs that the user of the request has claimed each lease, and the right to hold its name. The leader checks that.
func (n Names) Renew(ctx context.Context, ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) (err error) {
	if ctx, err = n.renewal(ctx); err != nil {
		return err
	}
	return n.Member.Renew(ctx, ids, answer)
}

// Claim needs the right to hold the name.
func (n Names) Claim(ctx context.Context, c ownership.Claim) (claimed ownership.Claimed, err error) {
	if ctx, err = n.change(ctx); err != nil {
		return claimed, err
	}
	return n.Member.Claim(ctx, c)
}

// Hold needs the right to hold each name.
func (n Names) Hold(ctx context.Context, watch *node.NameWatch, ops []entry.Command, answer func([]node.HoldAnswer)) (err error) {
	if ctx, err = n.change(ctx); err != nil {
		return err
	}
	return n.Member.Hold(ctx, watch, ops, answer)
}

// Place needs that the user of the request has made the claim, and the right to hold the name.
func (n Names) Place(ctx context.Context, name string, lease lessor.ID) (place ownership.Place, err error) {
	holds := func(p *access.Policy, c access.Caller) error { return p.CheckName(c, name, access.Hold) }
	err = n.read(ctx, true, holds, func() (err error) {
		place, err = n.Member.Place(ctx, name, lease)
		return err
	})
	if err == nil {
		err = n.verdict(ctx, func(p *access.Policy, c access.Caller) error {
			if !p.Enabled() || c.User == place.Creator || p.CheckRoot(c) == nil {
				return nil
			}
			return access.ErrPermissionDenied
		})
	}
	if err != nil {
		return ownership.Place{}, err
	}
	return place, nil
}

// Release needs that the user of the request has made the claim.
func (n Names) Release(ctx context.Context, name string, lease lessor.ID) (ended bool, err error) {
	if ctx, err = n.change(ctx); err != nil {
		return false, err
	}
	return n.Member.Release(ctx, name, lease)
}

// RevokeName needs the right to administer the name.
func (n Names) RevokeName(ctx context.Context, c ownership.Revoke) (revoked ownership.Revoked, err error) {
	if ctx, err = n.act(ctx); err != nil {
		return revoked, err
	}
	return n.Member.RevokeName(ctx, c)
}

// Transfer needs the right to administer the name, or that the user of the request has made the claim.
func (n Names) Transfer(ctx context.Context, name string, lease lessor.ID) (token int64, err error) {
	if ctx, err = n.act(ctx); err != nil {
		return 0, err
	}
	return n.Member.Transfer(ctx, name, lease)
}

// Finish needs that the user of the request has made the claim.
func (n Names) Finish(ctx context.Context, c ownership.Finish) (err error) {
	if ctx, err = n.change(ctx); err != nil {
		return err
	}
	return n.Member.Finish(ctx, c)
}

// RaiseMark needs that the user of the request has made the claim.
func (n Names) RaiseMark(ctx context.Context, c ownership.RaiseMark) (err error) {
	if ctx, err = n.change(ctx); err != nil {
		return err
	}
	return n.Member.RaiseMark(ctx, c)
}

// Prefer needs the right to administer the name.
func (n Names) Prefer(ctx context.Context, c ownership.Prefer) (err error) {
	if ctx, err = n.act(ctx); err != nil {
		return err
	}
	return n.Member.Prefer(ctx, c)
}

// Pin needs the right to administer the name.
func (n Names) Pin(ctx context.Context, name, reason string) (err error) {
	if ctx, err = n.act(ctx); err != nil {
		return err
	}
	return n.Member.Pin(ctx, name, reason)
}

// Unpin needs the right to administer the name.
func (n Names) Unpin(ctx context.Context, name string) (err error) {
	if ctx, err = n.act(ctx); err != nil {
		return err
	}
	return n.Member.Unpin(ctx, name)
}

// Names needs the right to see who holds each name, or to hold it: a refused claim shows as much as this does.
func (n Names) Names(ctx context.Context, names []string) (states replica.NameStates, err error) {
	sees := func(p *access.Policy, c access.Caller) error {
		for _, name := range names {
			if p.CheckName(c, name, access.Watch) == nil {
				continue
			}
			if err := p.CheckName(c, name, access.Hold); err != nil {
				return err
			}
		}
		return nil
	}
	err = n.read(ctx, true, sees, func() (err error) {
		states, err = n.Member.Names(ctx, names)
		return err
	})
	if err != nil {
		return replica.NameStates{}, err
	}
	return states, nil
}

// Queue needs the right to see who holds the name.
func (n Names) Queue(ctx context.Context, name string, most int) (s ownership.State, err error) {
	sees := func(p *access.Policy, c access.Caller) error { return p.CheckName(c, name, access.Watch) }
	err = n.read(ctx, true, sees, func() (err error) {
		s, err = n.Member.Queue(ctx, name, most)
		return err
	})
	if err != nil {
		return ownership.State{}, err
	}
	return s, nil
}

// HeldNames needs the right to see who holds the names with the prefix.
func (n Names) HeldNames(ctx context.Context, prefix, after string, limit int) (names []string, index uint64, err error) {
	sees := func(p *access.Policy, c access.Caller) error { return p.CheckNames(c, prefix, access.Watch) }
	err = n.read(ctx, true, sees, func() (err error) {
		names, index, err = n.Member.HeldNames(ctx, prefix, after, limit)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return names, index, nil
}

// History needs the right to see who holds the name.
func (n Names) History(ctx context.Context, name string) (tenures []record.Tenure, err error) {
	sees := func(p *access.Policy, c access.Caller) error { return p.CheckName(c, name, access.Watch) }
	err = n.read(ctx, true, sees, func() (err error) {
		tenures, err = n.Member.History(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return tenures, nil
}

// isGone reports whether a lease does not exist.
func isGone(err error) bool { return errors.Is(err, lessor.ErrNotFound) }
