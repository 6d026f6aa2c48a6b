package etcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// heldOn is the revocation that a holder puts next to its own key, to leave its name held until the lease has run out. So
// renewals are refused from then on.
const heldOn = "its holder has released it, and it stays held until its lease ends"

// isHeldOn reports whether a revocation is that of a holder that has left.
func isHeldOn(revocation *mvccpb.KeyValue) bool {
	return revocation != nil && string(revocation.Value) == heldOn
}

// CheckHold implements [backend.Finisher].
func (b *Backend) CheckHold(ttl, d time.Duration) error {
	if d <= ttl {
		return nil
	}
	return &backend.UnsupportedError{
		Backend: Scheme, What: backend.Finishes + " for longer than its TTL",
		Instead: fmt.Sprintf("choose a TTL of %v or more in place of %v: etcd cannot change the TTL of a lease", d, ttl),
	}
}

// Finish implements [backend.Finisher]. A name that is held on stays held for the rest of its lease, which may be longer than
// f.Hold but never longer than the TTL. The name of a revoked lease is free at once.
func (b *Backend) Finish(ctx context.Context, l backend.Lease, f backend.Finish) error {
	own, err := endpoints.Known[*lease](b, l)
	if err != nil {
		return err
	}
	if err := b.CheckHold(own.ttl, f.Hold); err != nil {
		return err
	}
	if f.Hold <= 0 && f.Tick.IsZero() {
		return b.Release(ctx, l)
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	r := &recording{lease: own, tick: f.Tick, hold: max(0, f.Hold), leaves: true, what: "finishing " + own.name}
	if err := r.run(ctx); err != nil {
		return err
	}
	if r.hold == 0 && !own.mayBeHeldOn.Load() {
		// The name is free. The lease has no key any more, and ends by itself if this fails.
		_ = own.end(ctx)
	}
	return nil
}

// recording is a request of a holder that records a tick as completed, leaves its name, or does both.
type recording struct {
	*lease
	tick   backend.Tick  // the zero Tick records nothing
	leaves bool          // the holder leaves its name
	hold   time.Duration // for how long from now on the name stays held after that
	what   string
}

// standing is what etcd says of the lease, and of the mark of its name.
type standing struct {
	holds      bool // the lease holds its name
	waits      bool // the lease waits in the queue of its name
	revocation *mvccpb.KeyValue
	mark       storedMark
}

func (r *recording) run(ctx context.Context) error {
	now, err := r.read(ctx)
	switch {
	case err != nil:
		return err
	case !now.holds:
		return r.over(ctx, now)
	}
	// The end of a revoked lease must not be put off.
	if r.hold > 0 && now.revocation == nil {
		lives, f := r.lastsFor(ctx, r.hold)
		if f != nil {
			return f.Read(r.what)
		}
		if !lives {
			return r.ended(ctx)
		}
	}
	return r.record(ctx, now)
}

// read returns the standing of the lease. If no key was created before its own, it holds its name from then on until its key
// is gone: a key that is created later has a higher create revision. So record only requires that the key is there.
func (r *recording) read(ctx context.Context) (standing, error) {
	var now standing
	ops := append(r.stateOps(), rangeOp(r.b.rangeAhead(r.name, r.created, 1)))
	resp, f := r.b.look(ctx, &pb.TxnRequest{Success: ops})
	if f != nil {
		return now, r.b.permitted(f, f.Read(r.what))
	}
	now, err := r.stateOf(resp)
	if now.holds && single(resp.Responses[len(ops)-1]) != nil {
		// A key before it need not be in the queue.
		place, f := r.b.lookUpPlace(ctx, r.lease)
		if f != nil {
			return now, f.Read(r.what)
		}
		now.waits = place.before != nil
		now.holds = !place.gone && !now.waits
	}
	return now, err
}

// stateOps read the key of the lease, its revocation, and the mark if there is a tick to record.
func (r *recording) stateOps() []*pb.RequestOp {
	ops := []*pb.RequestOp{rangeOp(oneKey(r.key)), rangeOp(oneKey(string(r.revocation())))}
	if !r.tick.IsZero() {
		ops = append(ops, rangeOp(oneKey(r.b.markKey(r.name))))
	}
	return ops
}

// stateOf returns what stateOps have read. It does not know who else is in the queue.
func (r *recording) stateOf(resp *pb.TxnResponse) (now standing, err error) {
	now.revocation = single(resp.Responses[1])
	now.holds = r.is(single(resp.Responses[0])) && !isHeldOn(now.revocation)
	if !r.tick.IsZero() {
		if now.mark, err = parseMark(single(resp.Responses[2])); err != nil {
			err = fmt.Errorf("%s: %w", r.what, err)
		}
	}
	return now, err
}

// record makes the changes in one transaction, which checks that the key of the lease is there and that nothing has changed
// since the read. So an attempt that arrives late has no effect.
func (r *recording) record(ctx context.Context, now standing) error {
	key := r.b.markKey(r.name)
	for range maxMarks {
		compare := []*pb.Compare{r.condition(), r.attachment(), unchanged(string(r.revocation()), revisionOf(now.revocation))}
		var changes []*pb.RequestOp
		if !r.tick.IsZero() {
			raised, err := now.mark.Raised(r.tick, r.token())
			if err != nil {
				return fmt.Errorf("%s: %w", r.what, err)
			}
			compare = append(compare, unchanged(key, now.mark.rev))
			if raised != now.mark.Mark {
				changes = append(changes, writeMark(key, raised))
			}
		}
		changes = append(changes, r.leaving(now)...)
		if len(changes) == 0 {
			return nil // the read has shown that the lease holds the name
		}
		resp, f := r.b.txn(ctx, &pb.TxnRequest{Compare: compare, Success: changes, Failure: r.stateOps()})
		switch {
		case f != nil:
			return r.b.permitted(f, f.Write(r.what))
		case resp.Succeeded:
			return nil
		}
		var err error
		switch now, err = r.stateOf(resp); {
		case err != nil:
			return err
		case !now.holds:
			return r.over(ctx, now)
		}
	}
	return fmt.Errorf("%w: %s: other processes keep changing the mark: try again", backend.ErrContention, r.what)
}

// leaving returns the changes with which the holder leaves its name.
func (r *recording) leaving(now standing) []*pb.RequestOp {
	if now.revocation != nil {
		r.hold = 0 // a person has said that the tenure should end
	}
	switch {
	case !r.leaves:
		return nil
	case r.hold == 0:
		return []*pb.RequestOp{deleteOp(r.key)}
	}
	r.mayBeHeldOn.Store(true)
	put := &pb.PutRequest{Key: r.revocation(), Value: []byte(heldOn), Lease: r.id}
	return []*pb.RequestOp{putOp(put)}
}

// over returns the result of a request whose lease does not hold its name. It is nil if an earlier attempt has had the effect,
// though later tenures may have raised the mark since. So over reads back the versions of the mark since this tenure began,
// which etcd keeps until it compacts them.
func (r *recording) over(ctx context.Context, now standing) error {
	if now.waits {
		return fmt.Errorf("%w: %s: the lease waits in the queue", backend.ErrLost, r.what)
	}
	if r.leaves && isHeldOn(now.revocation) {
		return nil
	}
	mark := now.mark
	for range maxMarks {
		if r.recorded(mark.Mark) {
			return nil
		}
		if mark.rev <= r.created { // also if there is none
			return fmt.Errorf("%w: %s: the key %s is gone from etcd, or its holder has released it", backend.ErrLost, r.what, r.key)
		}
		before := oneKey(r.b.markKey(r.name))
		before.Revision = mark.rev - 1
		read, f := r.b.rangeKeys(ctx, before)
		if f != nil {
			f.Maybe = true // an earlier attempt may have recorded the tick
			return f.Write(r.what)
		}
		var err error
		if mark, err = parseMark(first(read)); err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
	}
	return fmt.Errorf("%w: %s: the lease has ended, and the mark was replaced many times since", backend.ErrUnknownOutcome, r.what)
}

// recorded reports whether this tenure may have left the mark m behind: then m has its token. A holder that left had nothing to
// raise if the mark of an earlier tenure, or of a person, was as high already.
func (r *recording) recorded(m backend.Mark) bool {
	if r.tick.IsZero() || m.IsZero() || !m.Tick.SameKind(r.tick) || m.Tick.Compare(r.tick) < 0 {
		return false
	}
	return m.Token == r.token() || r.leaves && m.Token < r.token()
}

// ended returns the result of a request after a member of etcd has said that the lease is gone.
func (r *recording) ended(ctx context.Context) error {
	now, err := r.read(ctx)
	switch {
	case err != nil:
		return err
	case now.holds:
		return fmt.Errorf("%w: %s: etcd says that the lease is gone, but its key is not", backend.ErrUnavailable, r.what)
	}
	return r.over(ctx, now)
}

// lastsFor renews the lease if it could end before d has passed on this process's clock; etcd's may be faster. It reports
// false if etcd does not know the lease. The count of the renewed lease begins after the call, so it lasts for its TTL from
// the call.
func (l *lease) lastsFor(ctx context.Context, d time.Duration) (bool, *failure) {
	left, f := l.b.timeToLive(ctx, l.id, false)
	if f != nil {
		return false, f
	}
	if ttlUnit.Duration(left.TTL) >= clock.DefaultDrift.WaitRemote(d) { // etcd rounds down
		return true, nil
	}
	ttl, f := l.b.keepOne(ctx, l.id)
	return ttl > 0, f
}

// staysHeld reports whether [Backend.Finish] has left the name held. A release must then change nothing.
func (l *lease) staysHeld(ctx context.Context) (bool, *failure) {
	if !l.mayBeHeldOn.Load() {
		return false, nil
	}
	read, f := l.b.rangeKeys(ctx, oneKey(string(l.revocation())))
	if f != nil {
		return false, f
	}
	return isHeldOn(first(read)), nil
}
