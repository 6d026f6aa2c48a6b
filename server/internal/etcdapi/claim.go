package etcdapi

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

const (
	// claimTTL is the TTL of a lease that the server grants for a claim without one, as in etcd.
	claimTTL = 60 * time.Second
	// claimRenewal is the interval at which the server renews that lease while the claim waits.
	claimRenewal = claimTTL / 3
)

// claimRequest asks for a name on behalf of a lease.
type claimRequest struct {
	name  []byte
	lease int64 // 0: the server grants one
	value []byte
	// revalue is set if an existing key gets the value.
	revalue bool
	lost    error // the error if the key vanishes while the claim waits
}

// claimed is a name that a lease owns.
type claimed struct {
	key      []byte
	lease    int64
	created  int64          // the key's create revision
	enqueued replica.Header // of the moment at which the key was found or made
	now      replica.Header // of the moment at which the key was seen at the head of the queue
}

// claim is a request in progress. Its key NAME/LEASE, with the lease id in hexadecimal, is its place in the queue for
// the name. The key with the lowest create revision owns the name. This is etcd's recipe, so clients that follow the
// recipe themselves wait in the same queue.
type claim struct {
	claimRequest
	s       *API
	granted bool // the server granted the lease, and ends it if the claim fails
	prefix  []byte
	claimed
}

// claim waits until the lease owns the name. If it fails, or its client leaves, it removes its key, and the lease that
// was granted for it.
func (s *API) claim(ctx context.Context, r claimRequest) (*claimed, error) {
	ctx, end := s.cfg.Lifetime.Stream(admission.WithPin(ctx), lifetime.AnyLeader)
	defer end(nil)
	caller, err := s.cfg.Guard.Caller(ctx) // keeps the user for what must be cleaned up
	if err != nil {
		return nil, err
	}
	if caller.User != "" && caller.Revision < s.cfg.Guard.Policy().Revision() {
		return nil, access.ErrOldRevision
	}
	c := &claim{claimRequest: r, s: s}
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	return &c.claimed, nil
}

func (c *claim) run(ctx context.Context) error {
	// Wait for the outcome of every change, even when the client has left. Otherwise the claim could not remove what it
	// has made.
	settled, cancel := c.s.cfg.Lifetime.Settling()
	defer cancel()
	settled = admission.KeepPin(settled, ctx)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c.claimed.lease = c.claimRequest.lease
	if c.claimed.lease == 0 {
		_, granted, err := c.s.cfg.Member.Grant(settled, lessor.NoLease, claimTTL)
		if err != nil {
			return err
		}
		c.granted, c.claimed.lease = true, int64(granted.ID)
	}
	c.prefix = append(bytes.Clone(c.name), '/')
	c.key = strconv.AppendInt(bytes.Clone(c.prefix), c.claimed.lease, 16)
	q, leave := c.s.queues.Join(string(c.key))
	defer leave()

	first, err := c.enqueue(ctx, settled, q)
	if err == nil && !first {
		err = c.await(ctx)
	}
	if err == nil {
		err = context.Cause(ctx) // the client has left
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		q.owned = true
		return nil
	}
	c.giveUp(ctx, settled, q)
	return err
}

// enqueue makes or finds the key, and reports whether it is at the head of the queue.
func (c *claim) enqueue(ctx, settled context.Context, q *queue) (first bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	head := keyspace.RangeRequest{
		Key: c.prefix, End: prefixEnd(c.prefix), Limit: 1, KeysOnly: true,
		SortTarget: keyspace.SortByCreate, SortOrder: keyspace.SortAscend,
	}
	h, res, err := c.s.cfg.Member.Txn(settled, keyspace.TxnRequest{
		Compare: []keyspace.Compare{{Target: keyspace.CompareCreate, Key: c.key}},
		Success: []keyspace.TxnOp{keyspace.PutRequest{Key: c.key, Value: c.value, Lease: c.claimed.lease}, head},
		Failure: []keyspace.TxnOp{keyspace.RangeRequest{Key: c.key}, head},
	}, false)
	if err != nil {
		return false, err
	}
	h.Revision = res.Revision
	c.enqueued, c.now, c.created = h, h, res.Revision
	first = bytes.Equal(res.Results[1].(keyspace.RangeResult).KVs[0].Key, c.key)
	if res.Succeeded {
		return first, nil
	}
	own := res.Results[0].(keyspace.RangeResult).KVs[0]
	c.created = own.CreateRevision
	q.owned = q.owned || first // by an earlier claim, whose key this one must not remove
	if c.revalue && !bytes.Equal(own.Value, c.value) {
		_, err = c.s.proclaim(settled, c.key, c.created, c.claimed.lease, c.value)
	}
	return first, err
}

// await returns when the key is at the head of the queue. It watches its own key, which may vanish, and the key before
// it. So a new holder wakes one claim and not all.
func (c *claim) await(ctx context.Context) error {
	for {
		before, err := c.predecessor(ctx)
		if err != nil || before == nil {
			return err
		}
		if err := c.watch(ctx, before); err != nil {
			return err
		}
	}
}

// predecessor returns the key before this one in the queue, nil if there is none. It records the revision of that state
// in c.now.
func (c *claim) predecessor(ctx context.Context) ([]byte, error) {
	ops := []keyspace.TxnOp{keyspace.RangeRequest{Key: c.key, KeysOnly: true}, keyspace.RangeRequest{
		Key: c.prefix, End: prefixEnd(c.prefix), Limit: 1, KeysOnly: true, MaxCreateRevision: c.created - 1,
		SortTarget: keyspace.SortByCreate, SortOrder: keyspace.SortDescend,
	}}
	h, res, err := c.s.cfg.Member.Txn(ctx, keyspace.TxnRequest{Success: ops}, false)
	if err != nil {
		return nil, err
	}
	own, before := res.Results[0].(keyspace.RangeResult).KVs, res.Results[1].(keyspace.RangeResult).KVs
	if len(own) == 0 || own[0].CreateRevision != c.created {
		return nil, c.lost
	}
	c.now = h
	c.now.Revision = res.Revision
	if c.granted {
		c.renew(ctx)
	}
	if len(before) == 0 {
		return nil, nil
	}
	return before[0].Key, nil
}

// watch returns when either key has been deleted after the revision c.now, or when the lease is due for renewal.
func (c *claim) watch(ctx context.Context, before []byte) error {
	stream := c.s.cfg.Member.NewWatchStream(keyspace.StreamLimits{})
	defer stream.Close()
	for _, key := range [][]byte{c.key, before} {
		if _, err := stream.Watch(keyspace.WatchRequest{Key: key, StartRevision: c.now.Revision + 1, NoPut: true}); err != nil {
			return err
		}
	}
	limit := ctx
	if c.granted {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, claimRenewal)
		defer cancel()
	}
	for {
		r, err := stream.Next(limit)
		if err != nil {
			return context.Cause(ctx) // nil if only the renewal is due
		}
		if len(r.Events) > 0 || r.Canceled {
			return nil
		}
	}
}

// renew renews the lease that was granted for this claim, since no client knows the lease. If that fails, the key
// vanishes.
func (c *claim) renew(ctx context.Context) {
	c.s.cfg.Member.Renew(ctx, []lessor.ID{lessor.ID(c.claimed.lease)}, func(replica.Header, []replica.RenewedLease) {})
}

// giveUp removes what the claim has made, on the server's own account: its user may have lost the right to, and the next client
// in the queue must not wait for that. The key stays if it already owned the name, or if another claim of the same lease uses
// it.
func (c *claim) giveUp(ctx, settled context.Context, q *queue) {
	settled = admission.AsServer(settled)
	var err error
	switch {
	case c.granted:
		err = c.s.revoke(settled, c.claimed.lease)
	case c.created == 0 || q.owned || c.s.queues.Users(string(c.key)) > 1:
	case c.enqueued.Term != c.s.cfg.Member.Header().Term:
		// Another member leads or has led. There the client may have repeated the claim with the same key.
		err = lifetime.ErrLeaderChanged
	default:
		_, err = c.s.resign(settled, c.key, c.created)
	}
	if err != nil && !errors.Is(err, lessor.ErrNotFound) {
		tracing.Log(ctx, c.s.cfg.Log).Warn("a failed claim could not be removed from its queue; it ends with its lease", "error", err)
	}
}

// revoke ends a lease, here or at the leader.
func (s *API) revoke(ctx context.Context, lease int64) error {
	here := func(ctx context.Context, _ any) (any, error) {
		_, err := s.cfg.Member.Revoke(ctx, lessor.ID(lease))
		return nil, err
	}
	if s.cfg.Cluster == nil {
		_, err := here(ctx, nil)
		return err
	}
	_, err := s.cfg.Cluster.Unary(ctx, pb.Lease_LeaseRevoke_FullMethodName, &pb.LeaseRevokeRequest{ID: lease}, here)
	return err
}

// resign deletes a key if it has the given create revision.
func (s *API) resign(ctx context.Context, key []byte, created int64) (replica.Header, error) {
	h, res, err := s.cfg.Member.Txn(ctx, keyspace.TxnRequest{
		Compare: []keyspace.Compare{{Target: keyspace.CompareCreate, Key: key, Number: created}},
		Success: []keyspace.TxnOp{keyspace.DeleteRequest{Key: key}},
	}, false)
	h.Revision = max(h.Revision, res.Revision)
	return h, err
}

// prefixEnd returns the end of the interval of all keys with a prefix. The prefix ends with a slash.
func prefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	end[len(end)-1]++
	return end
}

// queue is the state of one key NAME/LEASE for which claims are in progress here. Two claims of one lease for one name
// share a key, because a client may repeat its claim before the first has ended. The end of the first claim must not
// delete the key of the second.
type queue struct {
	mu    sync.Mutex // held while the key is made or deleted
	owned bool       // a claim has succeeded, so the key is its client's; guarded by mu
}
