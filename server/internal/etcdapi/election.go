package etcdapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// These texts come from etcd's client library. etcd's server returns them unchanged, and clients recognize them.
var (
	errNotLeader     = status.Error(codes.Unknown, "election: not leader")
	errNoLeader      = status.Error(codes.Unknown, "election: no leader")
	errNoLeaderKey   = status.Error(codes.Unknown, `"leader" field must be provided`)
	errCandidateGone = status.Error(codes.Unknown, "election: session is expired")
)

// electionService is etcd's Election. It carries out the recipe of etcd's client for elections.
type electionService struct {
	v3electionpb.UnimplementedElectionServer
	*API
}

func (e *electionService) Campaign(ctx context.Context, r *v3electionpb.CampaignRequest) (*v3electionpb.CampaignResponse, error) {
	if err := e.checkSize(r); err != nil {
		return nil, err
	}
	won, err := e.claim(ctx, claimRequest{
		name: r.Name, lease: r.Lease, value: r.Value, revalue: true, lost: errCandidateGone,
	})
	if err != nil {
		return nil, ofRecipe(err)
	}
	return &v3electionpb.CampaignResponse{
		Header: header(won.enqueued),
		Leader: &v3electionpb.LeaderKey{Name: r.Name, Key: won.key, Rev: won.created, Lease: won.lease},
	}, nil
}

func (e *electionService) Proclaim(ctx context.Context, r *v3electionpb.ProclaimRequest) (*v3electionpb.ProclaimResponse, error) {
	if r.Leader == nil {
		return nil, errNoLeaderKey
	}
	if err := e.checkSize(r); err != nil {
		return nil, err
	}
	h, err := e.proclaim(ctx, r.Leader.Key, r.Leader.Rev, r.Leader.Lease, r.Value)
	if err != nil {
		return nil, ofRecipe(err)
	}
	return &v3electionpb.ProclaimResponse{Header: header(h)}, nil
}

// proclaim changes the value of a key that still has the given create revision. With lease 0, the key keeps its lease.
func (s *API) proclaim(ctx context.Context, key []byte, created, lease int64, value []byte) (replica.Header, error) {
	h, res, err := s.cfg.Member.Txn(ctx, keyspace.TxnRequest{
		Compare: []keyspace.Compare{{Target: keyspace.CompareCreate, Key: key, Number: created}},
		Success: []keyspace.TxnOp{keyspace.PutRequest{Key: key, Value: value, Lease: lease, IgnoreLease: lease == 0}},
	}, false)
	if err == nil && !res.Succeeded {
		err = errNotLeader
	}
	h.Revision = max(h.Revision, res.Revision)
	return h, err
}

func (e *electionService) Resign(ctx context.Context, r *v3electionpb.ResignRequest) (*v3electionpb.ResignResponse, error) {
	if r.Leader == nil {
		return nil, errNoLeaderKey
	}
	if err := e.checkSize(r); err != nil {
		return nil, err
	}
	h, err := e.resign(ctx, r.Leader.Key, r.Leader.Rev)
	if err != nil {
		return nil, ofRecipe(err)
	}
	return &v3electionpb.ResignResponse{Header: header(h)}, nil
}

func (e *electionService) Leader(ctx context.Context, r *v3electionpb.LeaderRequest) (*v3electionpb.LeaderResponse, error) {
	h, leader, err := e.leader(ctx, r.Name)
	if err != nil {
		return nil, ofRecipe(err)
	}
	if leader == nil {
		return nil, errNoLeader
	}
	return &v3electionpb.LeaderResponse{Header: header(h), Kv: keyValue(leader)}, nil
}

// leader returns the key of the leader, nil if there is none, and the revision of that state.
func (s *API) leader(ctx context.Context, name []byte) (replica.Header, *keyspace.KV, error) {
	prefix := append(append([]byte(nil), name...), '/')
	h, res, err := s.cfg.Member.Range(ctx, keyspace.RangeRequest{
		Key: prefix, End: prefixEnd(prefix), Limit: 1,
		SortTarget: keyspace.SortByCreate, SortOrder: keyspace.SortAscend,
	}, false)
	if err != nil {
		return replica.Header{}, nil, err
	}
	h.Revision = max(h.Revision, res.Revision)
	if len(res.KVs) == 0 {
		return h, nil, nil
	}
	return h, &res.KVs[0], nil
}

type observeStream = grpc.ServerStreamingServer[v3electionpb.LeaderResponse]

// Observe sends every leader, and every value that it proclaims while it leads. If leaders change faster than the
// client reads, it sends the newest.
func (e *electionService) Observe(r *v3electionpb.LeaderRequest, stream observeStream) error {
	ctx, end := e.cfg.Lifetime.Stream(stream.Context(), lifetime.AnyLeader)
	defer end(nil)
	o := &observer{s: e.API, name: r.Name, stream: stream}
	for {
		h, leader, err := e.leader(ctx, r.Name)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // why the stream ends: the server may be stopping, and not the client
		}
		if err != nil {
			return ofRecipe(err)
		}
		if leader != nil {
			if err := o.send(h, leader); err != nil {
				return ofRecipe(err)
			}
		}
		if err := o.follow(ctx, h.Revision, leader); err != nil {
			return ofRecipe(err)
		}
	}
}

// observer is one client that observes an election.
type observer struct {
	s      *API
	name   []byte
	stream observeStream
	sent   int64 // the mod revision of the newest key that was sent
}

// send sends a leader's key unless the client has already received it.
func (o *observer) send(h replica.Header, kv *keyspace.KV) error {
	if kv.ModRevision == o.sent {
		return nil
	}
	o.sent = kv.ModRevision
	return o.stream.Send(&v3electionpb.LeaderResponse{Header: header(h), Kv: keyValue(kv)})
}

// follow sends the changes of a leader's key after a revision, and returns when the leader no longer leads. Without a
// leader it returns when there may be one.
func (o *observer) follow(ctx context.Context, revision int64, leader *keyspace.KV) error {
	req := keyspace.WatchRequest{StartRevision: revision + 1}
	if leader != nil {
		req.Key = leader.Key
	} else {
		req.Key = append(append([]byte(nil), o.name...), '/')
		req.End, req.NoDelete = prefixEnd(req.Key), true
	}
	watchers := o.s.cfg.Member.NewWatchStream(keyspace.StreamLimits{})
	defer watchers.Close()
	if _, err := watchers.Watch(req); err != nil {
		return err
	}
	for {
		r, err := watchers.Next(ctx)
		if err != nil {
			return err
		}
		if r.Canceled {
			return nil // the next change was compacted, so read the present leader
		}
		for i := range r.Events {
			event := &r.Events[i]
			if leader == nil || event.Type == keyspace.EventDelete {
				return nil
			}
			if err := o.s.cfg.Guard.MayRead(ctx, event.KV.Key, nil); err != nil { // it may have been withdrawn
				return err
			}
			h := o.s.cfg.Member.Header()
			h.Revision = event.KV.ModRevision
			if err := o.send(h, &event.KV); err != nil {
				return err
			}
		}
	}
}
