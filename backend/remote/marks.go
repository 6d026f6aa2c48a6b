package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// Mark implements [backend.Marker].
func (b *Backend) Mark(ctx context.Context, name string) (backend.Mark, error) {
	if err := backend.CheckName(name); err != nil {
		return backend.Mark{}, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return backend.Mark{}, err
	}
	defer end()
	return b.readMark(ctx, name)
}

func (b *Backend) readMark(ctx context.Context, name string) (backend.Mark, error) {
	var resp *leasekeeperv1.GetMarkResponse
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.names.GetMark(ctx, &leasekeeperv1.GetMarkRequest{Name: b.root + name}, options...)
		return err
	}))
	what := "reading the mark of " + name
	if o.Err != nil {
		return backend.Mark{}, lacking(o.Err, backend.Marks, o.Read(what))
	}
	if resp.Mark == nil {
		return backend.Mark{}, nil
	}
	tick, err := backend.ParseTick(resp.Mark.Tick)
	if err != nil {
		return backend.Mark{}, fmt.Errorf("%w: %s: %v", backend.ErrCorrupt, what, err)
	}
	return backend.Mark{Tick: tick, Token: backend.Token(resp.Mark.Token)}, nil
}

// ListMarks implements [backend.MarkLister]. It reads the keys of the marks by etcd's API, which the server speaks too.
func (b *Backend) ListMarks(ctx context.Context, prefix, after string, limit int) ([]backend.NamedMark, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("%w: a list of up to %d marks: ask for at least one", backend.ErrInvalid, limit)
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	key, last := endpoints.MarkRange(b.root, prefix, after)
	req, resp := &pb.RangeRequest{Key: key, RangeEnd: last, Limit: int64(limit)}, (*pb.RangeResponse)(nil)
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Range(ctx, req, options...)
		return err
	}))
	if o.Err != nil {
		return nil, o.Read("listing marks")
	}
	return endpoints.ReadMarks(b.root, resp.Kvs), nil
}

// RaiseMark implements [backend.Marker].
func (b *Backend) RaiseMark(ctx context.Context, l backend.Lease, t backend.Tick) error {
	if err := backend.CheckTick(t); err != nil {
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
	what := "raising the mark of " + own.Name()
	req := &leasekeeperv1.RaiseMarkRequest{Name: own.wire, Lease: own.id, Token: uint64(own.token()), Tick: t.String()}
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.RaiseMark(ctx, req, options...)
		return err
	}))
	if o.Err == nil {
		own.markDoubted.Store(false)
		return nil
	}
	if reasonOf(o.Err) == leasekeeperv1.ErrorReason_LOST && (o.Maybe || own.markDoubted.Load()) {
		err = b.raised(ctx, own, t, what)
	} else {
		err = lacking(o.Err, backend.Marks, o.Write(what))
	}
	if errors.Is(err, backend.ErrUnknownOutcome) {
		own.markDoubted.Store(true)
	}
	return err
}

// lacking returns err, unless the server, or another member of its cluster, is of a version without a method. It then
// returns a [*backend.UnsupportedError]. Earlier attempts had no effect then either: a cluster that has carried out one
// such request refuses no other.
func lacking(answer error, what string, err error) error {
	unsupported := &backend.UnsupportedError{Backend: Scheme, What: what}
	switch {
	case reasonOf(answer) == leasekeeperv1.ErrorReason_UNSUPPORTED:
		unsupported.Instead = allMembersNew
	case status.Code(answer) == codes.Unimplemented:
		unsupported.Instead = "this server is of an older version: upgrade it"
	default:
		return err
	}
	return unsupported
}

// raised reports whether an earlier attempt has raised the mark, before its lease was lost. A later holder, or a person, may
// have raised the mark further since, and then nothing shows what became of that attempt.
func (b *Backend) raised(ctx context.Context, l *lease, t backend.Tick, what string) error {
	m, err := b.readMark(ctx, l.Name())
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: the lease is lost, and an earlier attempt may have raised the mark: %v", backend.ErrUnknownOutcome, what, err)
	case !m.Tick.SameKind(t) || m.Tick.Compare(t) < 0:
	case m.Token == l.token():
		return nil
	case m.Token == 0 || m.Token > l.token():
		return fmt.Errorf("%w: %s: the lease is lost, and an earlier attempt may have raised the mark before it got to %v", backend.ErrUnknownOutcome, what, m.Tick)
	}
	return fmt.Errorf("%w: %s: the lease does not hold the name", backend.ErrLost, what)
}

// ReplaceMark implements [backend.Marker].
func (b *Backend) ReplaceMark(ctx context.Context, name string, before, after backend.Mark) (bool, error) {
	if err := backend.CheckName(name); err != nil {
		return false, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	what := "replacing the mark of " + name
	req := &leasekeeperv1.ReplaceMarkRequest{Name: b.root + name, Old: wireMark(before), New: wireMark(after)}
	var resp *leasekeeperv1.ReplaceMarkResponse
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.names.ReplaceMark(ctx, req, options...)
		return err
	}))
	switch {
	case o.Err != nil:
		return false, lacking(o.Err, backend.Marks, o.Write(what))
	case resp.Replaced || !o.Maybe:
		return resp.Replaced, nil
	}
	now, err := b.readMark(ctx, name) // an earlier attempt may have replaced it
	if err != nil {
		return false, fmt.Errorf("%w: %s: %v", backend.ErrUnknownOutcome, what, err)
	}
	return now == after, nil
}

func wireMark(m backend.Mark) *leasekeeperv1.Mark {
	if m.IsZero() {
		return nil
	}
	return &leasekeeperv1.Mark{Tick: m.Tick.String(), Token: uint64(m.Token)}
}

// CheckHold implements [backend.Finisher]. It does not know the server's --max-ttl, which is 24 hours unless an operator
// sets it: [Backend.ConfirmHold] asks the server.
func (b *Backend) CheckHold(_, d time.Duration) error {
	if d > maxTTL {
		return fmt.Errorf("%w: a name cannot be held for %v: the longest time is %v", backend.ErrInvalid, d, time.Duration(maxTTL))
	}
	return nil
}

// ConfirmHold implements [backend.HoldConfirmer]. A server that grants a TTL also holds a name for so long, because one limit
// (--max-ttl) is for both. For a longer time the backend asks with the finish of a lease that does not exist. It asks no
// more about times that a server has allowed.
func (b *Backend) ConfirmHold(ctx context.Context, name string, ttl, d time.Duration) error {
	if d <= max(ttl, time.Duration(b.confirmedHold.Load())) {
		return nil
	}
	if err := backend.CheckName(name); err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	req := &leasekeeperv1.FinishRequest{Name: b.root + name, Lease: 1 + rand.Int64N(math.MaxInt64), HoldMs: ttlUnit.Count(d)}
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Finish(ctx, req, options...)
		return err
	}))
	if reasonOf(o.Err) != leasekeeperv1.ErrorReason_LOST {
		return lacking(o.Err, backend.Finishes, o.Read("holding "+name+" after its release"))
	}
	b.confirmedHold.Store(int64(d)) // a shorter time than another call has stored costs one more request
	return nil
}

// Finish implements [backend.Finisher].
func (b *Backend) Finish(ctx context.Context, l backend.Lease, f backend.Finish) error {
	own, err := endpoints.Known[*lease](b, l)
	if err != nil {
		return err
	}
	if err := b.CheckHold(own.ttl, f.Hold); err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	req := &leasekeeperv1.FinishRequest{Name: own.wire, Lease: own.id, Token: uint64(own.token()), HoldMs: ttlUnit.Count(max(f.Hold, 0))}
	if !f.Tick.IsZero() {
		req.Tick = f.Tick.String()
	}
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Finish(ctx, req, options...)
		return err
	}))
	if o.Err != nil {
		return lacking(o.Err, backend.Finishes, o.Write("finishing "+own.Name()))
	}
	return nil
}
