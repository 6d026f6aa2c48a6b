package etcd

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

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
// f.Hold but never longer than the TTL.
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
	r := &recording{lease: own, tick: f.Tick, hold: f.Hold, leaves: f.Hold <= 0, what: "finishing " + own.name}
	if err := r.run(ctx); err != nil {
		return err
	}
	if r.leaves {
		// The name is free. The lease has no key any more, and ends by itself if this fails.
		_ = own.end(ctx)
	}
	return nil
}

// recording is a request of a holder that records a tick as completed, or decides how its tenure ends.
type recording struct {
	*lease
	tick   backend.Tick  // the zero Tick records nothing
	hold   time.Duration // for how long the lease must last from now on; 0 leaves it as it is
	leaves bool          // the transaction that writes the mark also deletes the key of the lease
	what   string
}

// standing is what etcd says of the lease, and of the mark of its name.
type standing struct {
	holds   bool // the lease holds its name
	waits   bool // the lease waits in the queue of its name
	revoked bool
	mark    storedMark
}

func (r *recording) run(ctx context.Context) error {
	now, err := r.read(ctx)
	if err != nil {
		return err
	}
	if !now.holds {
		return r.over(ctx, now)
	}
	if r.hold > 0 && !now.revoked {
		lives, f := r.lastsFor(ctx, r.hold)
		if f != nil {
			return f.Read(r.what)
		}
		if !lives {
			return r.ended(ctx)
		}
	}
	if r.tick.IsZero() {
		return nil
	}
	return r.record(ctx, now.mark)
}

// read returns the standing of the lease. If no key was created before its own, it holds its name from then on until its key
// is gone: a key that is created later has a higher create revision. So record only requires that the key is there.
func (r *recording) read(ctx context.Context) (standing, error) {
	var now standing
	ops := []*pb.RequestOp{rangeOp(oneKey(r.key)), rangeOp(r.b.rangeAhead(r.name, r.created, 1)), rangeOp(oneKey(string(r.revocation())))}
	if !r.tick.IsZero() {
		ops = append(ops, rangeOp(oneKey(r.b.markKey(r.name))))
	}
	resp, f := r.b.look(ctx, &pb.TxnRequest{Success: ops})
	if f != nil {
		return now, r.b.permitted(f, f.Read(r.what))
	}
	if !r.tick.IsZero() {
		var err error
		if now.mark, err = parseMark(single(resp.Responses[3])); err != nil {
			return now, fmt.Errorf("%s: %w", r.what, err)
		}
	}
	now.holds, now.revoked = r.is(single(resp.Responses[0])), single(resp.Responses[2]) != nil
	if now.holds && single(resp.Responses[1]) != nil {
		// A key before it need not be in the queue.
		place, f := r.b.lookUpPlace(ctx, r.lease)
		if f != nil {
			return now, f.Read(r.what)
		}
		now.waits = place.before != nil
		now.holds = !place.gone && !now.waits
	}
	return now, nil
}

// record raises the mark, in one transaction with the check that the key of the lease is there, and with its deletion if the
// holder leaves. An attempt that arrives late has no effect: by then the mark has changed, or the key is gone.
func (r *recording) record(ctx context.Context, mark storedMark) error {
	key := r.b.markKey(r.name)
	for range maxMarks {
		raised, err := mark.Raised(r.tick, r.token())
		if err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
		var changes []*pb.RequestOp
		if raised != mark.Mark {
			changes = append(changes, writeMark(key, raised))
		}
		if r.leaves {
			changes = append(changes, deleteOp(r.key))
		}
		if len(changes) == 0 {
			return nil // the read has shown that the lease holds the name
		}
		resp, f := r.b.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{r.condition(), r.attachment(), mark.unchanged(key)},
			Success: changes,
			Failure: []*pb.RequestOp{rangeOp(oneKey(r.key)), rangeOp(oneKey(key))},
		})
		switch {
		case f != nil:
			return r.b.permitted(f, f.Write(r.what))
		case resp.Succeeded:
			return nil
		}
		if mark, err = parseMark(single(resp.Responses[1])); err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
		if !r.is(single(resp.Responses[0])) {
			return r.over(ctx, standing{mark: mark})
		}
	}
	return fmt.Errorf("%w: %s: other processes keep changing the mark: try again", backend.ErrContention, r.what)
}

// over returns the result of a request whose lease does not hold its name. It is nil if an earlier attempt has recorded the
// tick, though later tenures may have raised the mark since. So over reads back the versions of the mark since this tenure
// began, which etcd keeps until it compacts them.
func (r *recording) over(ctx context.Context, now standing) error {
	if now.waits {
		return fmt.Errorf("%w: %s: the lease waits in the queue", backend.ErrLost, r.what)
	}
	mark := now.mark
	for range maxMarks {
		if r.recorded(mark.Mark) {
			return nil
		}
		if mark.rev <= r.created { // also if there is none
			return fmt.Errorf("%w: %s: the key %s is gone from etcd", backend.ErrLost, r.what, r.key)
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

// lastsFor renews the lease if it could end before d has passed. It reports false if etcd does not know the lease. The count
// of the renewed lease begins after the call, so it lasts for its TTL from the call.
func (l *lease) lastsFor(ctx context.Context, d time.Duration) (bool, *failure) {
	left, f := l.b.timeToLive(ctx, l.id, false)
	if f != nil {
		return false, f
	}
	if ttlUnit.Duration(left.TTL) >= d { // etcd rounds down
		return true, nil
	}
	ttl, f := l.b.keepOne(ctx, l.id)
	return ttl > 0, f
}
