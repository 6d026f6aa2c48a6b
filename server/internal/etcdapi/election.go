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

// Texts of etcd's client, which etcd's server passes on as they are, and by which clients know them.
var (
	errNotLeader     = status.Error(codes.Unknown, "election: not leader")
	errNoLeader      = status.Error(codes.Unknown, "election: no leader")
	errNoLeaderKey   = status.Error(codes.Unknown, `"leader" field must be provided`)
	errCandidateGone = status.Error(codes.Unknown, "election: session is expired")
)

// electionService is etcd's Election: the recipe of its client's elections, carried out here.
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
		return nil, err
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
		return nil, err
	}
	return &v3electionpb.ProclaimResponse{Header: header(h)}, nil
}

// proclaim changes the value of a key that is still the one that was created then. Without a lease it keeps
// the one it has.
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
		return nil, err
	}
	return &v3electionpb.ResignResponse{Header: header(h)}, nil
}

func (e *electionService) Leader(ctx context.Context, r *v3electionpb.LeaderRequest) (*v3electionpb.LeaderResponse, error) {
	h, leader, err := e.leader(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	if leader == nil {
		return nil, errNoLeader
	}
	return &v3electionpb.LeaderResponse{Header: header(h), Kv: keyValue(leader)}, nil
}

// leader returns the key of who leads, nil if nobody does, and the revision at which that is so.
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

// Observe sends every leader and every value it proclaims while it leads; of leaders that come and go faster
// than the client reads it sends the newest.
func (e *electionService) Observe(r *v3electionpb.LeaderRequest, stream observeStream) error {
	ctx, end := e.cfg.Lifetime.Stream(stream.Context(), lifetime.AnyLeader)
	defer end(nil)
	o := &observer{s: e.API, name: r.Name, stream: stream}
	for {
		h, leader, err := e.leader(ctx, r.Name)
		if err != nil {
			return err
		}
		if leader != nil {
			if err := o.tell(h, leader); err != nil {
				return err
			}
		}
		if err := o.follow(ctx, h.Revision, leader); err != nil {
			return err
		}
	}
}

// observer is one client that wants to know who leads.
type observer struct {
	s      *API
	name   []byte
	stream observeStream
	told   int64 // the mod revision of what it was told last
}

// tell sends a leader's key unless the client knows it.
func (o *observer) tell(h replica.Header, kv *keyspace.KV) error {
	if kv.ModRevision == o.told {
		return nil
	}
	o.told = kv.ModRevision
	return o.stream.Send(&v3electionpb.LeaderResponse{Header: header(h), Kv: keyValue(kv)})
}

// follow tells what becomes of a leader after a revision until it no longer leads. Without a leader it
// returns when there may be one.
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
			return nil // what was to come next was compacted: look again
		}
		for i := range r.Events {
			event := &r.Events[i]
			if leader == nil || event.Type == keyspace.EventDelete {
				return nil
			}
			h := o.s.cfg.Member.Header()
			h.Revision = event.KV.ModRevision
			if err := o.tell(h, &event.KV); err != nil {
				return err
			}
		}
	}
}
