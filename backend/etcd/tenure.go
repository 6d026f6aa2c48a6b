package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Announce implements [backend.Announcer].
func (b *Backend) Announce(ctx context.Context, l backend.Lease, text string) error {
	if err := backend.CheckCardText(text); err != nil {
		return err
	}
	own, err := endpoints.Known[*lease](b, l)
	if err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return b.recard(ctx, own, "announcing on "+own.name, func(c *card) { c.Text = text })
}

// maxRecards is how often recard tries again because another process has changed the card.
const maxRecards = 8

// recard changes the card of a lease. Its write is conditional on the version of the key that it read, so an attempt that
// arrives late has no effect.
func (b *Backend) recard(ctx context.Context, l *lease, what string, change func(*card)) error {
	for range maxRecards {
		read, f := b.rangeKeys(ctx, oneKey(l.key))
		if f != nil {
			return f.Read(what)
		}
		kv := first(read)
		if !l.is(kv) {
			return fmt.Errorf("%w: %s: the key %s is gone from etcd", backend.ErrLost, what, l.key)
		}
		c, ok := readCard(kv)
		if !ok {
			return fmt.Errorf("%w: %s: another program has overwritten the card of %s", backend.ErrCorrupt, what, l.key)
		}
		change(&c)
		value := c.bytes()
		if string(value) == string(kv.Value) {
			return nil
		}
		put := &pb.PutRequest{Key: []byte(l.key), Value: value, Lease: l.id}
		resp, f := b.txn(ctx, &pb.TxnRequest{
			Compare: append(l.conditions(), unchanged(l.key, kv.ModRevision)),
			Success: []*pb.RequestOp{putOp(put)},
			Failure: []*pb.RequestOp{rangeOp(oneKey(string(l.revocation())))},
		})
		switch {
		case f == nil && resp.Succeeded:
			return nil
		case f == nil && single(resp.Responses[0]) != nil:
			return revoked(what, single(resp.Responses[0]))
		case f.says(rpctypes.ErrGRPCLeaseNotFound):
			return fmt.Errorf("%w: %s: its lease has ended", backend.ErrLost, what)
		case f != nil:
			return f.Write(what)
		}
		// The card has changed since the read, perhaps by an earlier attempt of this request.
	}
	return fmt.Errorf("%w: %s: other processes keep changing the card: try again", backend.ErrContention, what)
}

// revoked returns the error for a lease with a revocation.
func revoked(what string, mark *mvccpb.KeyValue) error {
	return fmt.Errorf("%w: %s: %s", backend.ErrLost, what, whyRevoked(mark))
}

// whyRevoked returns what a revocation says.
func whyRevoked(mark *mvccpb.KeyValue) string {
	if isHeldOn(mark) {
		return heldOn
	}
	return "it was revoked: " + backend.Printable(string(mark.Value))
}

// Resume implements [backend.Resumer]. It puts the new holder on the card. It cannot resume the lock of another program,
// whose lease may stand for more than one name.
func (b *Backend) Resume(ctx context.Context, name string, t backend.Token, by backend.Holder) (backend.Lease, backend.Grant, error) {
	none := backend.Grant{}
	if err := backend.CheckName(name); err != nil {
		return nil, none, err
	}
	if err := backend.CheckHolder(by); err != nil {
		return nil, none, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, none, err
	}
	defer end()
	what := "resuming " + name
	held, f := b.lookUpTenure(ctx, name, b.queuePrefix(name))
	if f != nil {
		return nil, none, f.Read(what)
	}
	if held.owner == nil || backend.Token(held.owner.CreateRevision) != t {
		return nil, none, fmt.Errorf("%w: %s: token %d does not hold it", backend.ErrLost, what, t)
	}
	if _, ok := readCard(held.owner); !ok {
		return nil, none, &backend.UnsupportedError{Backend: Scheme, What: backend.Resume + " of the lock of another program"}
	}
	l := &lease{b: b, name: name, key: string(held.owner.Key), id: held.owner.Lease, created: held.owner.CreateRevision}
	revocation, f := b.rangeKeys(ctx, oneKey(string(l.revocation())))
	switch {
	case f != nil:
		return nil, none, f.Read(what)
	case first(revocation) != nil:
		return nil, none, revoked(what, first(revocation))
	}
	ttl, f := b.keepOne(ctx, l.id)
	if f != nil {
		return nil, none, f.Read(what)
	}
	// The renewal comes first: after it, recard sees whether the key is still there.
	if err := b.recard(ctx, l, what, func(c *card) { c.of(by) }); err != nil {
		return nil, none, err
	}
	if ttl <= 0 {
		return nil, none, fmt.Errorf("%w: %s: etcd does not know its lease", backend.ErrUnavailable, what)
	}
	l.ttl = ttl
	return l, backend.Grant{Held: true, Token: l.token(), TTL: ttl}, nil
}

// Revoke implements [backend.Revoker]. Without now it puts a revocation next to the holder's key, attached to the same
// lease. Renewals check for it, so the lease ends when its holder no longer renews it. That works for holders that use
// this package, not for the locks of other programs.
func (b *Backend) Revoke(ctx context.Context, name string, token backend.Token, reason string, now bool) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	if err := backend.CheckCardText(reason); err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	what := "revoking " + name
	held, f := b.lookUpTenure(ctx, name, b.queuePrefix(name))
	if f != nil {
		return f.Read(what)
	}
	if held.owner == nil || token != 0 && backend.Token(held.owner.CreateRevision) != token {
		return fmt.Errorf("%w: %s: no lease holds it under that token", backend.ErrLost, what)
	}
	_, ours := readCard(held.owner)
	if !now && !ours {
		return &backend.UnsupportedError{
			Backend: Scheme, What: backend.Revoke + " of the lock of another program without now",
			Instead: "stop that program; or revoke with now, if it may go on until it notices",
		}
	}
	l := &lease{b: b, name: name, key: string(held.owner.Key), id: held.owner.Lease, created: held.owner.CreateRevision}
	op := deleteOp(l.key)
	if !now {
		op = putOp(&pb.PutRequest{Key: l.revocation(), Value: []byte(reason), Lease: l.id})
	}
	_, f = b.txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{l.condition()}, Success: []*pb.RequestOp{op}})
	switch {
	case f.says(rpctypes.ErrGRPCLeaseNotFound): // it has just ended
	case f != nil:
		return f.Write(what)
	case now && ours:
		// The tenure is over. Its lease, made for it alone, ends by itself if this fails. The lease of another program may
		// stand for more, so it stays.
		_ = l.end(ctx)
	}
	return nil
}
