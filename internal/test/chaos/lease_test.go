//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	leaseSeconds = 2
	// overdueLimit is how long after its deadline a lease must have ended.
	overdueLimit = 20 * time.Second
)

// leaseTally counts leases and their ends. mu guards it.
type leaseTally struct {
	mu       sync.Mutex
	held     int
	renewed  int
	ended    int
	lateness time.Duration // the longest
}

func (l *leaseTally) count(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *leaseTally) report(t testing.TB, hadTime bool) {
	t.Logf("%d leases held and renewed %d times, %d seen to end, none early and at most %v after the holder's deadline",
		l.held, l.renewed, l.ended, l.lateness.Round(time.Millisecond))
	if hadTime && (l.ended == 0 || l.renewed == 0) {
		t.Error("no lease was seen to be renewed and to end")
	}
}

// heldLease is a lease as its holder knows it.
type heldLease struct {
	id       int64
	key      string
	deadline time.Time // nothing may see the lease ended before it
}

// holdLeases holds one lease after the other until the end. It renews each for a while, then stops and watches it end.
func (l *load) holdLeases(first int) {
	for i := first; !l.over(); i++ {
		id := 1 + rand.Int64N(1<<62)
		h := &heldLease{id: id, key: fmt.Sprintf("lease/%x", id)}
		if !l.call("a grant", i, h.grant) || !l.call("a put under a lease", i, h.attach) {
			return
		}
		l.leases.count(func() { l.leases.held++ })
		for range rand.IntN(8) {
			l.pause(300 * time.Millisecond)
			if l.over() || !l.call("a renewal", i+rand.IntN(size), h.renew) {
				return
			}
			l.leases.count(func() { l.leases.renewed++ })
		}
		if !l.seeEnd(h, i) {
			return
		}
	}
}

// extend records an acknowledged request that was sent at asked.
func (h *heldLease) extend(asked time.Time, ttl int64) {
	if d := asked.Add(time.Duration(ttl) * time.Second); d.After(h.deadline) {
		h.deadline = d
	}
}

// ended returns an error if it is too early for the lease to be gone.
func (h *heldLease) ended(what string, s stubs) error {
	if left := time.Until(h.deadline); left > 0 {
		return errLost{fmt.Sprintf("%s at %s: the lease %x has ended, %v before its holder's deadline", what, name(s.at), h.id, left)}
	}
	return nil
}

func (h *heldLease) grant(ctx context.Context, s stubs) error {
	asked := time.Now()
	if h.deadline.IsZero() {
		h.deadline = asked // an attempt with an unknown outcome counts from its own start
	} else {
		asked = h.deadline
	}
	granted, err := s.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: h.id, TTL: leaseSeconds})
	switch {
	case err == nil:
		h.extend(asked, granted.TTL)
	case rpctypes.Error(err) == rpctypes.ErrLeaseExist:
		h.extend(asked, leaseSeconds) // an earlier attempt had granted it
		return nil
	}
	return err
}

func (h *heldLease) attach(ctx context.Context, s stubs) error {
	_, err := s.kv.Put(ctx, &pb.PutRequest{Key: []byte(h.key), Lease: h.id})
	if rpctypes.Error(err) == rpctypes.ErrLeaseNotFound {
		return h.ended("a put", s)
	}
	return err
}

// renew sends one renewal. The lease may be gone only after its deadline.
func (h *heldLease) renew(ctx context.Context, s stubs) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := s.lease.LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	asked := time.Now()
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: h.id}); err != nil {
		_, err = stream.Recv() // returns the reason
		return err
	}
	answer, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case answer.TTL <= 0:
		return h.ended("a renewal", s)
	}
	h.extend(asked, answer.TTL)
	return nil
}

// errThere means that a lease is not gone yet.
var errThere = errLost{"it is there"}

// gone returns nil if the lease has ended. It reads its key or asks for its remaining time.
func (h *heldLease) gone(ctx context.Context, s stubs) error {
	if rand.IntN(2) == 0 {
		answer, err := s.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: h.id})
		switch {
		case err != nil:
			return err
		case answer.TTL >= 0:
			return errThere
		}
		return h.ended("a look at the lease", s)
	}
	answer, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte(h.key), KeysOnly: true})
	switch {
	case err != nil:
		return err
	case len(answer.Kvs) > 0:
		return errThere
	}
	return h.ended("a read of its key", s)
}

// seeEnd waits for the end of a lease that is no longer renewed.
func (l *load) seeEnd(h *heldLease, first int) bool {
	for i := first; !l.over(); i++ {
		there := false
		if !l.call("a look at a lease", i, func(ctx context.Context, s stubs) error {
			err := h.gone(ctx, s)
			if there = err == error(errThere); there {
				return nil
			}
			return err
		}) {
			return false
		}
		late := time.Since(h.deadline)
		if !there {
			l.leases.count(func() {
				l.leases.ended++
				l.leases.lateness = max(l.leases.lateness, late)
			})
			return true
		}
		if late > overdueLimit {
			l.t.Errorf("the lease %x is there %v after its deadline", h.id, late)
			return false
		}
		l.pause(40 * time.Millisecond)
	}
	return false
}
