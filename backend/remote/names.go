package remote

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// pageSize is how many names one request lists.
const pageSize = 1000

// Get implements [backend.Backend].
func (b *Backend) Get(ctx context.Context, name string) (backend.Info, error) {
	if err := backend.CheckName(name); err != nil {
		return backend.Info{}, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return backend.Info{}, err
	}
	defer end()
	info, o := b.nameInfo(ctx, name)
	if o.Err != nil {
		return backend.Info{}, o.Read("asking about " + name)
	}
	return b.info(info), nil
}

func (b *Backend) nameInfo(ctx context.Context, name string) (*leasekeeperv1.NameInfo, endpoints.Outcome) {
	var resp *leasekeeperv1.GetResponse
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.names.Get(ctx, &leasekeeperv1.GetRequest{Name: b.root + name}, options...)
		return err
	}))
	return resp.GetInfo(), o
}

// Queue implements [backend.QueueLister]. The server returns at most 100 claims, and needs the right to watch the name.
func (b *Backend) Queue(ctx context.Context, name string, limit int) ([]backend.Waiter, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, nil
	}
	var resp *leasekeeperv1.GetResponse
	err := b.inspect(ctx, "asking for the queue of "+name, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.names.Get(ctx, &leasekeeperv1.GetRequest{Name: b.root + name, Waiters: int32(min(limit, math.MaxInt32))}, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.GetInfo().GetWaiting() > 0 && len(resp.Waiters) == 0 {
		return nil, &backend.UnsupportedError{Backend: Scheme, What: backend.Queue, Instead: "this server is of an older version: upgrade it"}
	}
	var waiting []backend.Waiter
	for _, w := range resp.Waiters {
		waiting = append(waiting, backend.Waiter{
			Holder: holderOf(w.Holder, w.Lease), Priority: backend.Priority(min(w.Priority, math.MaxInt16)), Preferred: w.Priority > math.MaxInt16, Foreign: w.Recipe,
		})
	}
	return waiting, nil
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix, after string, limit int) ([]backend.Info, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("%w: a list of up to %d names: ask for at least one", backend.ErrInvalid, limit)
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	req := &leasekeeperv1.ListRequest{Prefix: b.root + prefix}
	if after != "" {
		req.After = b.root + after
	}
	var found []backend.Info
	for {
		req.Limit = int32(min(limit-len(found), pageSize))
		var resp *leasekeeperv1.ListResponse
		o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
			resp, err = w.names.List(ctx, req, options...)
			return err
		}))
		if o.Err != nil {
			return nil, o.Read("listing names")
		}
		for _, info := range resp.Names {
			found = append(found, b.info(info))
		}
		// A page can be short although there is more: some of its names may have become free.
		if !resp.More || len(found) >= limit || resp.Last <= req.After {
			return found, nil
		}
		req.After = resp.Last
	}
}

// History implements [backend.Historian].
func (b *Backend) History(ctx context.Context, name string, limit int) ([]backend.Tenure, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if limit <= 0 {
		return nil, nil
	}
	past, o := b.readHistory(ctx, name, limit)
	if o.Err != nil {
		return nil, o.Read("asking for the history of " + name)
	}
	return past, nil
}

func (b *Backend) readHistory(ctx context.Context, name string, limit int) ([]backend.Tenure, endpoints.Outcome) {
	req := &leasekeeperv1.HistoryRequest{Name: b.root + name, Limit: int32(min(limit, pageSize))}
	var resp *leasekeeperv1.HistoryResponse
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.names.History(ctx, req, options...)
		return err
	}))
	var past []backend.Tenure
	for _, t := range resp.GetTenures() {
		past = append(past, backend.Tenure{
			Token: backend.Token(t.Token), Holder: holderOf(t.Holder, t.Lease),
			From: timeOf(t.From), To: timeOf(t.To), Why: reasons[t.Why], Note: t.Note,
		})
	}
	return past, o
}

var reasons = map[leasekeeperv1.Why]backend.Reason{
	leasekeeperv1.Why_RELEASED:    backend.Released,
	leasekeeperv1.Why_EXPIRED:     backend.Expired,
	leasekeeperv1.Why_REVOKED:     backend.Revoked,
	leasekeeperv1.Why_TRANSFERRED: backend.Transferred,
	leasekeeperv1.Why_DELETED:     backend.Deleted,
}

// info converts the state of a name.
func (b *Backend) info(n *leasekeeperv1.NameInfo) backend.Info {
	info := backend.Info{Name: strings.TrimPrefix(n.GetName(), b.root), Held: n.GetHeld(), Token: backend.Token(n.GetToken())}
	if n.GetPinned() {
		info.Pinned = n.PinReason
		if info.Pinned == "" {
			info.Pinned = "no reason was given"
		}
	}
	if !info.Held {
		return info
	}
	info.Holder = holderOf(n.Holder, n.Lease)
	info.TTL, info.Remaining, info.Waiting = ttlUnit.Duration(n.TtlMs), ttlUnit.Duration(n.RemainingMs), int(n.Waiting)
	return info
}

func wireHolder(h backend.Holder) *leasekeeperv1.Holder {
	wire := &leasekeeperv1.Holder{Id: h.ID, Host: h.Card.Host, Pid: int64(h.Card.PID), Text: h.Card.Text}
	// The wire cannot express every time. Such a time is omitted: no decision depends on it.
	if started := timestamppb.New(h.Card.Started); !h.Card.Started.IsZero() && started.IsValid() {
		wire.Started = started
	}
	return wire
}

// holderOf returns the holder of a lease. Only their lease identifies programs that follow etcd's recipe.
func holderOf(h *leasekeeperv1.Holder, lease int64) backend.Holder {
	id := h.GetId()
	if id == "" {
		id = "etcd lease " + strconv.FormatInt(lease, 16)
	}
	return backend.Holder{ID: id, Card: backend.Card{
		Host: h.GetHost(), PID: int(h.GetPid()), Started: timeOf(h.GetStarted()), Text: h.GetText(),
	}}
}

// timeOf returns a time, or the zero time for nil.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
