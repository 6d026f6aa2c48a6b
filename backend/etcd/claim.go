package etcd

import (
	"context"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// maxTries is how often a claim that does not wait reads the queue again because another process has changed it.
const maxTries = 8

// claiming is a claim under way.
type claiming struct {
	*lease
	claim   backend.Claim
	granted bool // the lease exists, or may exist, and must end if the claim fails
}

// Claim implements [backend.Backend].
func (b *Backend) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	if err := store.CheckClaim(c, b.Limits()); err != nil {
		return nil, backend.Grant{}, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, backend.Grant{}, err
	}
	defer end()
	id := endpoints.LeaseID(c.ID)
	p := &claiming{claim: c, lease: &lease{b: b, name: c.Name, key: b.keyOf(c.Name, id), id: id}}
	var g backend.Grant
	if c.Wait {
		g, err = p.enqueue(ctx)
	} else {
		g, err = p.try(ctx)
	}
	if err == nil {
		return p.lease, g, nil
	}
	if !p.granted {
		return nil, backend.Grant{}, err
	}
	return p.giveUp(ctx, err)
}

// giveUp ends the lease of a claim that failed. If it cannot, the caller receives the lease and can release it.
func (p *claiming) giveUp(ctx context.Context, err error) (backend.Lease, backend.Grant, error) {
	left := &lease{b: p.b, name: p.name, key: p.key, id: p.id, ttl: p.ttl}
	if ended := endpoints.Ended(ctx); ended != nil {
		return left, backend.Grant{}, fmt.Errorf("%w: %s: %w", backend.ErrUnknownOutcome, p.what(), ended)
	}
	f := p.end(ctx)
	switch {
	case f != nil && endpoints.IsContextError(f.Err):
		err = fmt.Errorf("%w: %s: %w", backend.ErrUnknownOutcome, p.what(), f.Err)
		return left, backend.Grant{}, err
	case f != nil:
		err = fmt.Errorf("%w: %v; and its lease could not be ended: %s", backend.ErrUnknownOutcome, err, store.Text(f.Err))
		return left, backend.Grant{}, err
	case isUnknown(err):
		// The outcome is known now: without the lease there is no key.
		err = fmt.Errorf("%w: %s: etcd did not answer in time, so the claim was undone: claim again", backend.ErrUnavailable, p.what())
	}
	return nil, backend.Grant{}, err
}

func (p *claiming) what() string { return "claiming " + p.name }

// enqueue puts the key into the queue, also behind others.
func (p *claiming) enqueue(ctx context.Context) (backend.Grant, error) {
	if err := p.grant(ctx); err != nil {
		return backend.Grant{}, err
	}
	compare := &pb.Compare{
		Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, Key: []byte(p.key),
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0},
	}
	resp, err := p.put(ctx, compare)
	if err != nil {
		return backend.Grant{}, err
	}
	if !resp.Succeeded {
		// An earlier attempt has put the key there.
		if err := p.recognize(single(resp.Responses[0])); err != nil {
			return backend.Grant{}, err
		}
		return p.place(ctx)
	}
	p.created = resp.Header.Revision
	keys := resp.Responses[1].GetResponseRange()
	others := slices.DeleteFunc(p.b.candidates(p.name, keys), func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision >= p.created })
	if len(others) == 0 && !keys.More {
		return p.held(), nil
	}
	return p.place(ctx)
}

// try puts the key into the queue only if the queue is empty, so other processes never see a waiter that does not wait.
func (p *claiming) try(ctx context.Context) (backend.Grant, error) {
	for range maxTries {
		t, f := p.b.lookUpTenure(ctx, p.name, p.key)
		if f != nil {
			return backend.Grant{}, p.failed(f)
		}
		if t.own != nil {
			return p.resumeAttempt(ctx, t)
		}
		if t.owner != nil {
			return backend.Grant{}, p.b.heldBy(ctx, p.name, t.owner)
		}
		if !p.granted || p.ttl == 0 {
			if err := p.grant(ctx); err != nil {
				return backend.Grant{}, err
			}
		}
		// No key of the queue, at any depth, may be newer than the read.
		prefix := p.b.queuePrefix(p.name)
		resp, err := p.put(ctx, &pb.Compare{
			Target: pb.Compare_CREATE, Result: pb.Compare_LESS, Key: []byte(prefix), RangeEnd: after(prefix),
			TargetUnion: &pb.Compare_CreateRevision{CreateRevision: t.rev + 1},
		})
		if err != nil {
			return backend.Grant{}, err
		}
		if resp.Succeeded {
			p.created = resp.Header.Revision
			return p.held(), nil
		}
	}
	return backend.Grant{}, fmt.Errorf("%w: %s: other processes keep creating keys below %s: try again", backend.ErrContention, p.what(), p.b.queuePrefix(p.name))
}

// resumeAttempt continues where an earlier attempt of the same claim stopped.
func (p *claiming) resumeAttempt(ctx context.Context, t tenure) (backend.Grant, error) {
	if err := p.recognize(t.own); err != nil {
		return backend.Grant{}, err
	}
	p.granted = true
	if t.owner != nil && t.owner.CreateRevision != p.created {
		// The key is in the queue, but this claim does not wait.
		return backend.Grant{}, p.b.heldBy(ctx, p.name, t.owner)
	}
	if p.ttl == 0 {
		if err := p.prolong(ctx); err != nil {
			return backend.Grant{}, err
		}
	}
	return p.place(ctx)
}

// recognize takes the token from the key that an earlier attempt of this claim has made.
func (p *claiming) recognize(kv *mvccpb.KeyValue) error {
	if kv == nil {
		return fmt.Errorf("%w: %s: the key was deleted at the same moment: claim again", backend.ErrContention, p.what())
	}
	if c, ok := readCard(kv); !ok || c.Claim != newCard(p.claim, 0).Claim {
		p.granted = false // the lease belongs to the other claim too
		return fmt.Errorf("%w: %s: the key %s belongs to another claim: choose another ID", backend.ErrInvalid, p.what(), p.key)
	}
	p.created = kv.CreateRevision
	return nil
}

func (p *claiming) held() backend.Grant {
	return backend.Grant{Held: true, Token: p.token(), TTL: p.ttl}
}

// place returns the grant that the key has now.
func (p *claiming) place(ctx context.Context) (backend.Grant, error) {
	s, f := p.b.lookUpPlace(ctx, p.lease)
	switch {
	case f != nil:
		return backend.Grant{}, p.failed(f)
	case s.gone:
		return backend.Grant{}, fmt.Errorf("%w: %s: the key was deleted at the same moment: claim again", backend.ErrContention, p.what())
	case s.before == nil:
		return p.held(), nil
	}
	return backend.Grant{Place: s.place, TTL: p.ttl}, nil
}

// put creates the key under a condition, and reads the key if the condition does not hold.
func (p *claiming) put(ctx context.Context, compare *pb.Compare) (*pb.TxnResponse, error) {
	made := newCard(p.claim, p.ttl)
	queued := rangeOp(p.b.queueRange(p.name, queueLimits[0]))
	put := &pb.PutRequest{Key: []byte(p.key), Value: made.bytes(), Lease: p.id}
	resp, f := p.b.txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{compare},
		Success: []*pb.RequestOp{putOp(put), queued},
		Failure: []*pb.RequestOp{rangeOp(oneKey(p.key)), queued},
	})
	if f.says(rpctypes.ErrGRPCLeaseNotFound) {
		return nil, fmt.Errorf("%w: %s: its lease ended before the key was put: claim again", backend.ErrUnavailable, p.what())
	}
	if f != nil {
		return nil, p.failed(f)
	}
	return resp, nil
}

// failed returns the error for a request of the claim that failed.
func (p *claiming) failed(f *failure) error { return f.Write(p.what()) }

// grant makes the lease. If it exists, an earlier attempt has made it; grant then renews it, because its TTL counts from that
// attempt.
func (p *claiming) grant(ctx context.Context) error {
	for range 2 {
		resp, f := p.b.leaseGrant(ctx, p.id, ttlUnit.Count(p.claim.TTL))
		switch {
		case f == nil:
			p.granted, p.ttl = true, ttlUnit.Duration(resp.TTL)
			return nil
		case !f.says(rpctypes.ErrGRPCLeaseExist):
			// If etcd is out of space, it makes the lease before it refuses.
			p.granted = p.granted || f.Maybe || f.says(rpctypes.ErrGRPCNoSpace)
			return p.failed(f)
		}
		left, f := p.b.timeToLive(ctx, p.id, true)
		if f != nil {
			p.granted = true
			return p.failed(f)
		}
		for _, key := range left.Keys {
			if string(key) != p.key {
				return fmt.Errorf("%w: %s: another claim has its ID: choose another ID", backend.ErrInvalid, p.what())
			}
		}
		p.granted = true
		if err := p.prolong(ctx); err != nil {
			return err
		}
		if p.ttl > 0 {
			return nil
		}
	}
	return fmt.Errorf("%w: %s: its lease ends at once: claim again", backend.ErrUnavailable, p.what())
}

// prolong renews the lease. It sets ttl to 0 if the lease has just ended.
func (p *claiming) prolong(ctx context.Context) error {
	ttl, f := p.b.keepOne(ctx, p.id)
	if f != nil {
		return p.failed(f)
	}
	p.ttl = max(0, ttl)
	return nil
}

// end ends the lease, and with it the key.
func (l *lease) end(ctx context.Context) *failure {
	if f := l.b.leaseRevoke(ctx, l.id); f != nil && !f.says(rpctypes.ErrGRPCLeaseNotFound) {
		return f
	}
	return nil
}

// heldBy returns the error that names the holder of a name, and when its lease ends.
func (b *Backend) heldBy(ctx context.Context, name string, owner *mvccpb.KeyValue) error {
	held := &backend.HeldError{Name: name, Holder: holderOf(owner), Token: backend.Token(owner.CreateRevision)}
	if left, f := b.timeToLive(ctx, owner.Lease, false); f == nil && left.TTL >= 0 {
		held.Ends = ttlUnit.Duration(left.TTL) + time.Second // etcd rounds down
	}
	return held
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, l backend.Lease) error {
	own, err := endpoints.Own[*lease](b, l)
	if err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	what := "releasing " + own.name
	stays, f := own.staysHeld(ctx)
	switch {
	case f != nil:
		return f.Read(what)
	case stays:
		return nil
	}
	if f := own.end(ctx); f != nil {
		return f.Write(what)
	}
	return nil
}
