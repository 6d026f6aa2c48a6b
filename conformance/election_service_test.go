package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"google.golang.org/grpc/codes"
)

const (
	textNotLeader = "election: not leader"
	textNoLeader  = "election: no leader"
)

func withElection(t *testing.T, test func(t *testing.T, s *server)) {
	eachTargetWith(t, test, areaElection)
}

func (s *server) elections() epb.ElectionClient {
	s.t.Helper()
	return epb.NewElectionClient(s.stubs().conn)
}

func campaignRequest(value string, lease clientv3.LeaseID) *epb.CampaignRequest {
	return &epb.CampaignRequest{Name: []byte("office"), Value: []byte(value), Lease: int64(lease)}
}

func TestElectionService(t *testing.T) {
	withElection(t, func(t *testing.T, s *server) {
		st, es := s.store(), s.elections()
		want := *s.identity(st.get("a").Header)
		lease := st.grant(60).ID
		_, err := es.Leader(s.context(), &epb.LeaderRequest{Name: []byte("office")})
		wantStatus(t, "before", err, codes.Unknown, textNoLeader)

		won, err := es.Campaign(s.context(), campaignRequest("one", lease))
		wantOK(t, "campaign", err)
		wantEqual(t, "name", string(won.Leader.Name), "office")
		wantEqual(t, "key", string(won.Leader.Key), fmt.Sprintf("office/%x", int64(lease)))
		wantEqual(t, "revision", won.Leader.Rev, 2)
		wantEqual(t, "lease", won.Leader.Lease, int64(lease))
		wantEqual(t, "header", won.Header.Revision, 2)
		wantEqual(t, "identity", *s.identity(won.Header), want)

		proclaimed, err := es.Proclaim(s.context(), &epb.ProclaimRequest{Leader: won.Leader, Value: []byte("two")})
		wantOK(t, "proclaim", err)
		wantEqual(t, "header", proclaimed.Header.Revision, 3)
		wantEqual(t, "identity", *s.identity(proclaimed.Header), want)
		leader, err := es.Leader(s.context(), &epb.LeaderRequest{Name: []byte("office")})
		wantOK(t, "leader", err)
		wantEqual(t, "leader", show(leader.Kv), fmt.Sprintf("office/%[1]x=two c2 m3 v2 lease %[1]x", int64(lease)))
		wantEqual(t, "header", leader.Header.Revision, 3)
		wantEqual(t, "identity", *s.identity(leader.Header), want)

		again, err := es.Campaign(s.context(), campaignRequest("three", lease))
		wantOK(t, "campaign by the one in office proclaims", err)
		wantEqual(t, "revision", again.Leader.Rev, 2)
		wantEqual(t, "value", string(st.get(string(won.Leader.Key)).Kvs[0].Value), "three")

		resigned, err := es.Resign(s.context(), &epb.ResignRequest{Leader: won.Leader})
		wantOK(t, "resign", err)
		wantEqual(t, "header", resigned.Header.Revision, 5)
		wantEqual(t, "identity", *s.identity(resigned.Header), want)
		wantEqual(t, "left over", st.members("office"), 0)
	})
}

func TestElectionServiceErrors(t *testing.T) {
	withElection(t, func(t *testing.T, s *server) {
		st, es := s.store(), s.elections()
		lease := st.grant(60).ID
		_, err := es.Campaign(s.context(), campaignRequest("x", 99))
		wantText(t, "unknown lease", err, textLeaseNotFound)
		_, err = es.Proclaim(s.context(), &epb.ProclaimRequest{})
		wantText(t, "proclaim for nobody", err, `"leader" field must be provided`)
		_, err = es.Resign(s.context(), &epb.ResignRequest{})
		wantText(t, "resign for nobody", err, `"leader" field must be provided`)
		won, err := es.Campaign(s.context(), campaignRequest("one", lease))
		wantOK(t, "campaign", err)
		stale := &epb.LeaderKey{Name: won.Leader.Name, Key: won.Leader.Key, Rev: won.Leader.Rev - 1, Lease: won.Leader.Lease}
		_, err = es.Proclaim(s.context(), &epb.ProclaimRequest{Leader: stale})
		wantStatus(t, "proclaim of another time", err, codes.Unknown, textNotLeader)
		_, err = es.Resign(s.context(), &epb.ResignRequest{Leader: stale})
		wantOK(t, "resign of another time", err)
		wantEqual(t, "which changes nothing", st.members("office"), 1)
		st.revoke(lease)
		_, err = es.Proclaim(s.context(), &epb.ProclaimRequest{Leader: won.Leader})
		wantStatus(t, "proclaim after the lease", err, codes.Unknown, textNotLeader)
		_, err = es.Resign(s.context(), &epb.ResignRequest{Leader: won.Leader})
		wantOK(t, "resign after the lease", err)
	})
}

func TestElectionServiceHandsOverInOrder(t *testing.T) {
	withElection(t, func(t *testing.T, s *server) {
		st, es := s.store(), s.elections()
		const n = 3
		won := make([]chan *epb.CampaignResponse, n)
		for i := range n {
			won[i] = make(chan *epb.CampaignResponse, 1)
			lease := st.grant(60).ID
			go func() {
				resp, err := es.Campaign(s.t.Context(), campaignRequest(fmt.Sprint(i), lease))
				if err != nil {
					t.Errorf("campaign: %v", err)
				}
				won[i] <- resp
			}()
			st.awaitMembers("office", i+1)
		}
		for i := range n {
			select {
			case resp := <-won[i]:
				leader, err := es.Leader(s.context(), &epb.LeaderRequest{Name: []byte("office")})
				wantOK(t, "leader", err)
				wantEqual(t, "leader", string(leader.Kv.Value), fmt.Sprint(i))
				_, err = es.Resign(s.context(), &epb.ResignRequest{Leader: resp.GetLeader()})
				wantOK(t, "resign", err)
			case <-time.After(waitLimit):
				t.Fatalf("candidate %d did not win within %v", i, waitLimit)
			}
		}
	})
}

func TestElectionServiceObserve(t *testing.T) {
	eachTargetWith(t, func(t *testing.T, s *server) {
		st, es := s.store(), s.elections()
		ctx, cancel := context.WithCancel(s.context())
		stream, err := es.Observe(ctx, &epb.LeaderRequest{Name: []byte("office")})
		wantOK(t, "observe", err)
		seen := make(chan *epb.LeaderResponse, 100)
		ended := make(chan error, 1)
		go func() {
			for {
				resp, err := stream.Recv()
				if err != nil {
					ended <- err
					return
				}
				seen <- resp
			}
		}()
		want := func(value string, revision int64) {
			t.Helper()
			select {
			case resp := <-seen:
				wantEqual(t, "observed", string(resp.Kv.Value), value)
				wantEqual(t, "revision", resp.Header.Revision, revision)
				wantEqual(t, "of the pair", resp.Kv.ModRevision, revision)
			case <-time.After(waitLimit):
				t.Fatalf("nothing observed within %v", waitLimit)
			}
		}
		won, err := es.Campaign(s.context(), campaignRequest("one", st.grant(60).ID))
		wantOK(t, "campaign", err)
		want("one", 2)
		_, err = es.Proclaim(s.context(), &epb.ProclaimRequest{Leader: won.Leader, Value: []byte("two")})
		wantOK(t, "proclaim", err)
		want("two", 3)
		_, err = es.Resign(s.context(), &epb.ResignRequest{Leader: won.Leader})
		wantOK(t, "resign", err)
		// An ordinary client takes part like any other.
		e := concurrency.NewElection(s.session(60), "office")
		wantOK(t, "campaign", e.Campaign(s.context(), "three"))
		want("three", 5)
		cancel()
		wantEqual(t, "the end", codeOf(due(t, "observe", waitLimit, ended)), codes.Canceled)
	}, areaElection, areaTxn)
}

func TestElectionServiceCandidatesThatVanish(t *testing.T) {
	withElection(t, func(t *testing.T, s *server) {
		st, es := s.store(), s.elections()
		_, err := es.Campaign(s.context(), campaignRequest("one", st.grant(60).ID))
		wantOK(t, "campaign", err)
		ctx, cancel := context.WithCancel(s.context())
		lease := st.grant(60).ID
		got := begin(func() error {
			_, err := es.Campaign(ctx, campaignRequest("two", lease))
			return err
		})
		st.awaitWaiting("office", 2)
		cancel()
		wantEqual(t, "given up", codeOf(due(t, "campaign", waitLimit, got)), codes.Canceled)
		st.awaitMembers("office", 1)
	})
}
