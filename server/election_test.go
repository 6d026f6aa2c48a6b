package server

import (
	"context"
	"fmt"
	"io"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
)

func (f *front) elections() v3electionpb.ElectionClient {
	return v3electionpb.NewElectionClient(f.conn)
}

func (f *front) campaign(ctx context.Context, lease int64, value string) (*v3electionpb.CampaignResponse, error) {
	return f.elections().Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("office"), Lease: lease, Value: []byte(value)})
}

func (f *front) leaderIs(value string, revision int64) {
	f.t.Helper()
	resp, err := f.elections().Leader(f.ctx(), &v3electionpb.LeaderRequest{Name: []byte("office")})
	wantOK(f.t, err)
	wantEqual(f.t, "leader", string(resp.Kv.Value), value)
	wantEqual(f.t, "revision of its value", resp.Kv.ModRevision, revision)
	f.header(resp.Header, f.node.Header().Revision)
}

func TestElectionLifecycle(t *testing.T) {
	f := startFront(t)
	_, err := f.elections().Leader(f.ctx(), &v3electionpb.LeaderRequest{Name: []byte("office")})
	wantStatus(t, err, status.Error(codes.Unknown, "election: no leader"))
	f.grant(60, 0xa)
	won, err := f.campaign(f.ctx(), 0xa, "one")
	wantOK(t, err)
	f.header(won.Header, 2)
	wantEqual(t, "leader", fmt.Sprintf("%s %s %d %x", won.Leader.Name, won.Leader.Key, won.Leader.Rev, won.Leader.Lease), "office office/a 2 a")
	f.leaderIs("one", 2)

	received, err := f.elections().Proclaim(f.ctx(), &v3electionpb.ProclaimRequest{Leader: won.Leader, Value: []byte("two")})
	wantOK(t, err)
	f.header(received.Header, 3)
	f.leaderIs("two", 3)
	again, err := f.campaign(f.ctx(), 0xa, "three") // the leader proclaims, and its election is still that of revision 2
	wantOK(t, err)
	wantEqual(t, "revision", again.Leader.Rev, 2)
	f.leaderIs("three", 4)
	_, err = f.campaign(f.ctx(), 0xa, "three")
	wantOK(t, err)
	f.leaderIs("three", 4)

	unleased := &v3electionpb.LeaderKey{Name: won.Leader.Name, Key: won.Leader.Key, Rev: won.Leader.Rev}
	_, err = f.elections().Proclaim(f.ctx(), &v3electionpb.ProclaimRequest{Leader: unleased, Value: []byte("four")})
	wantOK(t, err)
	kv, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: won.Leader.Key})
	wantOK(t, err)
	wantEqual(t, "lease", kv.Kvs[0].Lease, 0xa)

	stale := &v3electionpb.LeaderKey{Name: won.Leader.Name, Key: won.Leader.Key, Rev: 1, Lease: 0xa}
	_, err = f.elections().Proclaim(f.ctx(), &v3electionpb.ProclaimRequest{Leader: stale})
	wantStatus(t, err, status.Error(codes.Unknown, "election: not leader"))
	_, err = f.elections().Resign(f.ctx(), &v3electionpb.ResignRequest{Leader: stale})
	wantOK(t, err)
	f.leaderIs("four", 5)
	resigned, err := f.elections().Resign(f.ctx(), &v3electionpb.ResignRequest{Leader: won.Leader})
	wantOK(t, err)
	f.header(resigned.Header, 6)
	_, err = f.elections().Proclaim(f.ctx(), &v3electionpb.ProclaimRequest{Leader: won.Leader})
	wantStatus(t, err, status.Error(codes.Unknown, "election: not leader"))

	_, err = f.elections().Proclaim(f.ctx(), &v3electionpb.ProclaimRequest{})
	wantStatus(t, err, status.Error(codes.Unknown, `"leader" field must be provided`))
	_, err = f.elections().Resign(f.ctx(), &v3electionpb.ResignRequest{})
	wantStatus(t, err, status.Error(codes.Unknown, `"leader" field must be provided`))
	_, err = f.campaign(f.ctx(), 99, "")
	wantStatus(t, err, rpctypes.ErrGRPCLeaseNotFound)
}

func TestCampaignWaitsForTheLeader(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	f.grant(60, 2)
	f.grant(60, 3)
	first, err := f.campaign(f.ctx(), 1, "one")
	wantOK(t, err)
	second := begin(func() error {
		won, err := f.campaign(f.ctx(), 2, "two")
		if err == nil && won.Header.Revision != won.Leader.Rev {
			err = fmt.Errorf("header of revision %d, elected by the key of %d", won.Header.Revision, won.Leader.Rev)
		}
		return err
	})
	f.awaitKeys("office", 2)
	ctx, cancel := context.WithCancel(f.ctx())
	third := begin(func() error { _, err := f.campaign(ctx, 3, "three"); return err })
	f.awaitKeys("office", 3)
	cancel()
	wantCode(t, due(t, third), codes.Canceled)
	f.awaitKeys("office", 2)
	f.leaderIs("one", 2)
	_, err = f.elections().Resign(f.ctx(), &v3electionpb.ResignRequest{Leader: first.Leader})
	wantOK(t, err)
	wantOK(t, due(t, second))
	f.leaderIs("two", 3)

	gone := begin(func() error { _, err := f.campaign(f.ctx(), 3, "three"); return err })
	f.awaitKeys("office", 2)
	_, err = f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 3})
	wantOK(t, err)
	wantStatus(t, due(t, gone), status.Error(codes.Unknown, "election: session is expired"))
}

func TestObserveSendsEveryLeader(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	f.grant(60, 2)
	ctx, cancel := context.WithCancel(f.ctx())
	stream, err := f.elections().Observe(ctx, &v3electionpb.LeaderRequest{Name: []byte("office")})
	wantOK(t, err)
	want := func(value string, revision int64) {
		t.Helper()
		resp, err := stream.Recv()
		wantOK(t, err)
		wantEqual(t, "leader", string(resp.Kv.Value), value)
		f.header(resp.Header, revision)
	}
	first, err := f.campaign(f.ctx(), 1, "one")
	wantOK(t, err)
	want("one", 2)
	_, err = f.elections().Proclaim(f.ctx(), &v3electionpb.ProclaimRequest{Leader: first.Leader, Value: []byte("two")})
	wantOK(t, err)
	want("two", 3)
	second := begin(func() error { _, err := f.campaign(f.ctx(), 2, "three"); return err })
	f.awaitKeys("office", 2) // at revision 4; not observed yet
	f.put("elsewhere", "")   // at revision 5
	_, err = f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 1})
	wantOK(t, err)
	wantOK(t, due(t, second))
	want("three", 6)
	late, err := f.elections().Observe(f.ctx(), &v3electionpb.LeaderRequest{Name: []byte("office")})
	wantOK(t, err)
	resp, err := late.Recv()
	wantOK(t, err)
	wantEqual(t, "leader", string(resp.Kv.Value), "three")
	cancel()
	_, err = stream.Recv()
	wantCode(t, err, codes.Canceled)
	stopped := begin(func() error { return f.server.Stop(f.ctx()) })
	_, err = late.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCStopped)
	wantOK(t, due(t, stopped))
	if err == io.EOF {
		t.Error("the stream ended as if there were no more leaders")
	}
}
