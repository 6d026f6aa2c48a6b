package namesapi

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// markTries bounds how often ReplaceMark tries again because another client changed the mark in the meantime.
const markTries = 8

func (n *Service) Finish(ctx context.Context, r *leasekeeperv1.FinishRequest) (*leasekeeperv1.FinishResponse, error) {
	if err := checkLease(r.Name, r.Lease); err != nil {
		return nil, err
	}
	op := ownership.Finish{Name: r.Name, Lease: lessor.ID(r.Lease), Token: int64(r.Token)}
	if r.Tick != "" {
		tick, err := backend.ParseTick(r.Tick)
		if err != nil {
			return nil, err
		}
		op.Tick = tick.String()
	}
	var err error
	if op.Hold, err = n.holdOf(r.HoldMs); err != nil {
		return nil, err
	}
	if err := n.cfg.Member.Finish(ctx, op); err != nil {
		return nil, err
	}
	return &leasekeeperv1.FinishResponse{}, nil
}

// holdOf returns for how long this server must hold a name on, so that the requested milliseconds have passed on the clock of
// the client too. So a client's time may be as long as MaxTTL, and the result longer.
func (n *Service) holdOf(ms int64) (time.Duration, error) {
	switch {
	case ms == 0:
		return 0, nil
	case ms < 0:
		return 0, fmt.Errorf("%w: a name cannot be held for %d ms", backend.ErrInvalid, ms)
	case ms > n.cfg.MaxTTL.Milliseconds():
		return 0, fmt.Errorf("%w: a name cannot be held for %d ms: this server allows %v (--max-ttl)", backend.ErrInvalid, ms, n.cfg.MaxTTL)
	}
	held := clock.DefaultDrift.WaitRemote(time.Duration(ms) * time.Millisecond)
	held = (held + time.Millisecond - 1).Truncate(time.Millisecond) // clients see milliseconds
	return max(held, MinClaimTTL), nil
}

func (n *Service) RaiseMark(ctx context.Context, r *leasekeeperv1.RaiseMarkRequest) (*leasekeeperv1.RaiseMarkResponse, error) {
	if err := checkLease(r.Name, r.Lease); err != nil {
		return nil, err
	}
	tick, err := backend.ParseTick(r.Tick)
	if err != nil {
		return nil, err
	}
	op := ownership.RaiseMark{Name: r.Name, Lease: lessor.ID(r.Lease), Token: int64(r.Token), Tick: tick.String()}
	if err := n.cfg.Member.RaiseMark(ctx, op); err != nil {
		return nil, err
	}
	return &leasekeeperv1.RaiseMarkResponse{}, nil
}

func (n *Service) GetMark(ctx context.Context, r *leasekeeperv1.GetMarkRequest) (*leasekeeperv1.GetMarkResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	ctx, err := n.cfg.Rights.MayName(ctx, r.Name, access.Watch)
	if err != nil {
		return nil, err
	}
	// A client reads the mark before its work. If the tick could not be recorded after it, the client learns that now.
	if err := n.cfg.Member.CheckMarks(ctx); err != nil {
		return nil, err
	}
	m, _, err := n.readMark(ctx, r.Name)
	return &leasekeeperv1.GetMarkResponse{Mark: wireMark(m)}, err
}

// readMark returns the mark of a name, and the revision of its key; 0 if there is no key.
func (n *Service) readMark(ctx context.Context, name string) (m backend.Mark, revision int64, err error) {
	_, found, err := n.cfg.Member.Range(ctx, keyspace.RangeRequest{Key: record.MarkKey(name)}, false)
	if err != nil || len(found.KVs) == 0 {
		return backend.Mark{}, 0, err
	}
	m, err = record.MarkOf(name, found.KVs[0].Value)
	return m, found.KVs[0].ModRevision, err
}

// ReplaceMark rewrites the key of a mark, on the condition that no other client has changed it since it was read. By the form
// of this transaction, entry.ReplacedMark knows an act of the audit log.
func (n *Service) ReplaceMark(ctx context.Context, r *leasekeeperv1.ReplaceMarkRequest) (*leasekeeperv1.ReplaceMarkResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	before, err := markOf(r.Old)
	if err != nil {
		return nil, err
	}
	after, err := markOf(r.New)
	if err != nil {
		return nil, err
	}
	ctx, err = n.cfg.Rights.MayName(ctx, r.Name, access.Administer)
	if err != nil {
		return nil, err
	}
	var change keyspace.TxnOp = keyspace.DeleteRequest{Key: record.MarkKey(r.Name)}
	if !after.IsZero() {
		change = keyspace.PutRequest{Key: record.MarkKey(r.Name), Value: []byte(after.Text())}
	}
	for range markTries {
		m, revision, err := n.readMark(ctx, r.Name)
		if err != nil || m != before {
			return &leasekeeperv1.ReplaceMarkResponse{}, err
		}
		if m == after {
			return &leasekeeperv1.ReplaceMarkResponse{Replaced: true}, nil
		}
		_, result, err := n.cfg.Member.Txn(ctx, keyspace.TxnRequest{
			Compare: []keyspace.Compare{{Target: keyspace.CompareMod, Key: record.MarkKey(r.Name), Number: revision}},
			Success: []keyspace.TxnOp{change},
		}, false)
		if err != nil {
			return nil, err
		}
		if result.Succeeded {
			return &leasekeeperv1.ReplaceMarkResponse{Replaced: true}, nil
		}
	}
	return nil, replica.ErrTooManyRequests
}

// wireMark returns nil for the zero Mark.
func wireMark(m backend.Mark) *leasekeeperv1.Mark {
	if m.IsZero() {
		return nil
	}
	return &leasekeeperv1.Mark{Tick: m.Tick.String(), Token: uint64(m.Token)}
}

// markOf returns the mark of a message; nil stands for the zero Mark.
func markOf(m *leasekeeperv1.Mark) (backend.Mark, error) {
	if m == nil {
		return backend.Mark{}, nil
	}
	tick, err := backend.ParseTick(m.Tick)
	return backend.Mark{Tick: tick, Token: backend.Token(m.Token)}, err
}
