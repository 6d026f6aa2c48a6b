package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// maxTries is how often an operation starts again because another process has made a change.
const maxTries = 8

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
	req := &leasekeeperv1.AnnounceRequest{Name: own.wire, Lease: own.id, Text: text}
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Announce(ctx, req, options...)
		return err
	}))
	if o.Err != nil {
		return o.Write("announcing on " + own.Name())
	}
	return nil
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
	info, o := b.nameInfo(ctx, name)
	switch {
	case o.Err != nil:
		return nil, none, o.Read(what)
	case !info.GetHeld() || t == 0 || backend.Token(info.GetToken()) != t:
		return nil, none, fmt.Errorf("%w: %s: token %d does not hold it", backend.ErrLost, what, t)
	case info.GetHolder().GetId() == "":
		return nil, none, &backend.UnsupportedError{Backend: Scheme, What: backend.Resume + " of the lock of another program"}
	}
	l := &lease{b: b, wire: b.root + name, id: info.Lease, ttl: ttlUnit.Duration(info.TtlMs), holder: by.ID}
	l.newest.Store(uint64(t))
	if err := b.renewOne(ctx, l); err != nil {
		return nil, none, fmt.Errorf("%s: %w", what, err)
	}
	if holderOf(info.Holder, info.Lease) != by {
		if err := b.recard(ctx, l, by, what); err != nil {
			return nil, none, err
		}
	}
	return l, l.held(), nil
}

// card is the value of the ownership key: what the server keeps about a holder.
type card struct {
	Holder  string     `json:"holder"`
	Host    string     `json:"host,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Text    string     `json:"text,omitempty"`
}

// recard puts another holder on the card, through the server's etcd API. Its write is conditional on the version of the key
// that it read, so an attempt that arrives late has no effect.
func (b *Backend) recard(ctx context.Context, l *lease, by backend.Holder, what string) error {
	c := card{Holder: by.ID, Host: by.Card.Host, PID: by.Card.PID, Text: by.Card.Text}
	if started := wireHolder(by).Started; started != nil {
		utc := started.AsTime()
		c.Started = &utc
	}
	value, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("%w: %s: the holder: %v", backend.ErrInvalid, what, err)
	}
	for range maxTries {
		key, o := b.ownership(ctx, l)
		switch {
		case o.Err != nil:
			return o.Read(what)
		case key == nil || key.CreateRevision != int64(l.token()):
			return fmt.Errorf("%w: %s: its lease has just ended", backend.ErrLost, what)
		case string(key.Value) == string(value):
			return nil
		}
		resp, o := b.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{l.condition(), {
				Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: l.ownershipKey(),
				TargetUnion: &pb.Compare_ModRevision{ModRevision: key.ModRevision},
			}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{
				RequestPut: &pb.PutRequest{Key: l.ownershipKey(), Value: value, IgnoreLease: true},
			}}},
		})
		switch {
		case o.Err != nil:
			return o.Write(what)
		case resp.Succeeded:
			return nil
		}
		// The card has changed since the read, perhaps by an earlier attempt of this request.
	}
	return fmt.Errorf("%w: %s: other processes keep changing the card: try again", backend.ErrContention, what)
}

// Revoke implements [backend.Revoker].
func (b *Backend) Revoke(ctx context.Context, name string, token backend.Token, reason string, now bool) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	what := "revoking " + name
	for range maxTries {
		req := &leasekeeperv1.RevokeRequest{Name: b.root + name, Token: uint64(token), Reason: reason, Now: now}
		if token == 0 {
			// The request names the token, so a second attempt cannot revoke the next holder.
			info, o := b.nameInfo(ctx, name)
			if o.Err != nil {
				return o.Read(what)
			}
			if !info.GetHeld() {
				return fmt.Errorf("%w: %s: no lease holds it", backend.ErrLost, what)
			}
			req.Token = info.Token
		}
		o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
			_, err := w.names.Revoke(ctx, req, options...)
			return err
		}))
		gone := reasonOf(o.Err) == leasekeeperv1.ErrorReason_NOT_HELD || reasonOf(o.Err) == leasekeeperv1.ErrorReason_OTHER_TOKEN
		switch {
		case o.Err == nil, gone && o.Maybe:
			return nil // the tenure is over, perhaps by an earlier attempt
		case gone && token == 0:
			continue
		}
		return o.Write(what)
	}
	return fmt.Errorf("%w: %s: it keeps changing hands: try again with the token of the holder to revoke", backend.ErrContention, what)
}

// Pin implements [backend.Pinner].
func (b *Backend) Pin(ctx context.Context, name, reason string) error {
	return b.change(ctx, name, "pinning "+name, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Pin(ctx, &leasekeeperv1.PinRequest{Name: b.root + name, Reason: reason}, options...)
		return err
	})
}

// Unpin implements [backend.Pinner].
func (b *Backend) Unpin(ctx context.Context, name string) error {
	return b.change(ctx, name, "unpinning "+name, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Unpin(ctx, &leasekeeperv1.UnpinRequest{Name: b.root + name}, options...)
		return err
	})
}

// Prefer implements [backend.Preferrer].
func (b *Backend) Prefer(ctx context.Context, name, to string) error {
	err := b.change(ctx, name, "preferring a waiter for "+name, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Prefer(ctx, &leasekeeperv1.PreferRequest{Name: b.root + name, To: to}, options...)
		return err
	})
	return err
}

// change changes a name, whichever lease holds it.
func (b *Backend) change(ctx context.Context, name, what string, call func(context.Context, *endpoint, ...grpc.CallOption) error) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	o := b.endpoints.Ask(ctx, unary(call))
	switch {
	case o.Err == nil:
		return nil
	case reasonOf(o.Err) == leasekeeperv1.ErrorReason_NOT_HELD:
		return fmt.Errorf("%w: %s: no lease holds it", backend.ErrInvalid, what)
	}
	return lacking(o.Err, what, o.Write(what))
}

// Transfer implements [backend.Transferrer].
func (b *Backend) Transfer(ctx context.Context, l backend.Lease) error {
	own, err := endpoints.Known[*lease](b, l)
	if err != nil {
		return err
	}
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	what := "transferring " + own.Name()
	req := &leasekeeperv1.TransferRequest{Name: own.wire, Lease: own.id}
	o := b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.names.Transfer(ctx, req, options...)
		return err
	}))
	switch {
	case o.Err == nil:
		return nil
	case o.Maybe && reasonOf(o.Err) == leasekeeperv1.ErrorReason_LOST:
		return b.transferred(ctx, own, what)
	}
	return o.Write(what)
}

// transferred reports whether an earlier attempt at a transfer has ended the lease.
func (b *Backend) transferred(ctx context.Context, l *lease, what string) error {
	past, o := b.readHistory(ctx, l.Name(), pageSize)
	if o.Err != nil {
		o.Maybe = true // the transfer
		return o.Write(what)
	}
	for _, t := range past {
		switch {
		case t.Token != l.token():
		case t.Why == backend.Transferred:
			return nil
		default:
			return fmt.Errorf("%w: %s: its lease had ended before: %s", backend.ErrLost, what, backend.Printable(string(t.Why)))
		}
	}
	return fmt.Errorf("%w: %s: the lease has ended, and the server no longer knows why", backend.ErrUnknownOutcome, what)
}
