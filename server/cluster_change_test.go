package server

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// Any member takes a change, and answers when it shows in its own list.
func testMembersAreChanged(t *testing.T, tr *trio) {
	for _, m := range tr.members {
		added, err := m.cluster.MemberAdd(m.ctx(), &pb.MemberAddRequest{PeerURLs: []string{"http://192.0.2.1:2380"}, IsLearner: true})
		wantOK(t, err)
		id := added.Member.ID
		wantEqual(t, "member", fmt.Sprint(added.Member.Name, added.Member.PeerURLs, added.Member.IsLearner), "[http://192.0.2.1:2380] true")
		wantEqual(t, "members", len(added.Members), 4)
		wantEqual(t, "header", fmt.Sprint(added.Header.MemberId, added.Header.ClusterId, added.Header.Revision), fmt.Sprint(m.id, 77, 0))
		own := listedAt(t, m, false)[id]
		wantEqual(t, "in its own list", own != nil && own.IsLearner && own.Name == "", true)
		for _, other := range tr.members {
			wantEqual(t, "in a linearizable list", listedAt(t, other, true)[id] != nil, true)
		}
		_, err = m.cluster.MemberAdd(m.ctx(), &pb.MemberAddRequest{PeerURLs: []string{"http://192.0.2.2:2380"}, IsLearner: true})
		wantStatus(t, err, rpctypes.ErrGRPCTooManyLearners)
		_, err = m.cluster.MemberAdd(m.ctx(), &pb.MemberAddRequest{PeerURLs: []string{"http://192.0.2.1:2380"}})
		wantStatus(t, err, rpctypes.ErrGRPCPeerURLExist)
		_, err = m.cluster.MemberPromote(m.ctx(), &pb.MemberPromoteRequest{ID: id})
		wantStatus(t, err, rpctypes.ErrGRPCLearnerNotReady)
		_, err = m.cluster.MemberPromote(m.ctx(), &pb.MemberPromoteRequest{ID: m.id})
		wantStatus(t, err, rpctypes.ErrGRPCMemberNotLearner)
		testStateOfANewMember(t, tr, m, id)
		updated, err := m.cluster.MemberUpdate(m.ctx(), &pb.MemberUpdateRequest{ID: id, PeerURLs: []string{"http://192.0.2.3:2380"}})
		wantOK(t, err)
		wantEqual(t, "members", len(updated.Members), 4)
		wantEqual(t, "URLs", fmt.Sprint(listedAt(t, m, false)[id].PeerURLs), "[http://192.0.2.3:2380]")
		removed, err := m.cluster.MemberRemove(m.ctx(), &pb.MemberRemoveRequest{ID: id})
		wantOK(t, err)
		wantEqual(t, "members", len(removed.Members), 3)
		_, err = m.cluster.MemberRemove(m.ctx(), &pb.MemberRemoveRequest{ID: id})
		wantStatus(t, err, rpctypes.ErrGRPCMemberNotFound)
		_, err = m.cluster.MemberRemove(m.ctx(), &pb.MemberRemoveRequest{})
		wantStatus(t, err, rpctypes.ErrGRPCMemberNotFound)
	}
}

// listedAt returns the members that a member lists, by id.
func listedAt(t *testing.T, m *trioMember, linearizable bool) map[uint64]*pb.Member {
	t.Helper()
	list, err := m.cluster.MemberList(m.ctx(), &pb.MemberListRequest{Linearizable: linearizable})
	wantOK(t, err)
	all := make(map[uint64]*pb.Member)
	for i, listed := range list.Members {
		all[listed.ID] = listed
		wantEqual(t, "ids grow", i == 0 || list.Members[i-1].ID < listed.ID, true)
	}
	return all
}

// testStateOfANewMember looks at a learner that never started.
func testStateOfANewMember(t *testing.T, tr *trio, m *trioMember, id uint64) {
	t.Helper()
	list, err := leasekeeperv1.NewMembersClient(m.conn).List(m.ctx(), &leasekeeperv1.ListMembersRequest{})
	wantOK(t, err)
	wantEqual(t, "members", len(list.Members), 4)
	for _, listed := range list.Members {
		wantEqual(t, "learner", listed.Learner, listed.Id == id)
		wantEqual(t, "in trouble", listed.Trouble != "", listed.Id == id)
	}
	_, err = leasekeeperv1.NewMembersClient(m.conn).TransferLeadership(m.ctx(), &leasekeeperv1.TransferLeadershipRequest{To: id})
	wantCode(t, err, codes.InvalidArgument)
	leader, _ := tr.leader()
	_, err = leader.maintenance.MoveLeader(m.ctx(), &pb.MoveLeaderRequest{TargetID: id})
	wantStatus(t, err, rpctypes.ErrGRPCBadLeaderTransferee)
}

// Refusals of the replica arrive with etcd's statuses, through a follower too.
func TestRefusedChangesOfMembers(t *testing.T) {
	for err, want := range map[error]error{
		roster.ErrNotEnoughStarted: rpctypes.ErrGRPCMemberNotEnoughStarted,
		roster.ErrLastVoter:        rpctypes.ErrGRPCMemberNotEnoughStarted,
		roster.ErrUnhealthy:        rpctypes.ErrGRPCUnhealthy,
		roster.ErrRemoved:          rpctypes.ErrGRPCMemberNotFound,
		replica.ErrUnknownOutcome:  rpctypes.ErrGRPCTimeout,
		replica.ErrChanging:        status.Error(codes.Unavailable, "etcdserver: another change of the members is under way: try again when it is done"),
		replica.ErrTooNew:          status.Error(codes.FailedPrecondition, "etcdserver: "+replica.ErrTooNew.Error()),
	} {
		t.Run(err.Error(), func(t *testing.T) {
			p := startPair(t)
			p.nodes[0].change = func(roster.Change) error { return err }
			for _, f := range p.fronts {
				_, got := f.cluster.MemberRemove(f.ctx(), &pb.MemberRemoveRequest{ID: 5})
				wantStatus(t, got, want)
			}
		})
	}
}

// The leader draws the id. A follower forwards the whole request, once.
func TestFollowersForwardChangesOfMembers(t *testing.T) {
	p := startPair(t)
	var changes []roster.Change
	p.nodes[0].change = func(c roster.Change) error { changes = append(changes, c); return nil }
	p.nodes[1].change = func(roster.Change) error { t.Error("the follower changes its own list"); return nil }
	follower := p.fronts[1]
	added, err := follower.cluster.MemberAdd(follower.ctx(), &pb.MemberAddRequest{PeerURLs: []string{"http://b:1", "http://a:1"}, IsLearner: true})
	wantOK(t, err)
	wantEqual(t, "member", added.Header.MemberId, p.ids[1])
	_, err = follower.cluster.MemberUpdate(follower.ctx(), &pb.MemberUpdateRequest{ID: 7, PeerURLs: []string{"http://c:1"}})
	wantOK(t, err)
	_, err = follower.cluster.MemberPromote(follower.ctx(), &pb.MemberPromoteRequest{ID: 7})
	wantOK(t, err)
	_, err = follower.cluster.MemberRemove(follower.ctx(), &pb.MemberRemoveRequest{ID: 7})
	wantOK(t, err)
	wantEqual(t, "changes", fmt.Sprint(changes), fmt.Sprint([]roster.Change{
		{Kind: roster.Add, Member: roster.Member{ID: added.Member.ID, PeerURLs: []string{"http://a:1", "http://b:1"}, Learner: true}},
		{Kind: roster.Update, Member: roster.Member{ID: 7, PeerURLs: []string{"http://c:1"}}},
		{Kind: roster.Promote, Member: roster.Member{ID: 7}},
		{Kind: roster.Remove, Member: roster.Member{ID: 7}},
	}))
	wantEqual(t, "it has an id", added.Member.ID != 0, true)
	_, err = follower.cluster.MemberAdd(follower.ctx(), &pb.MemberAddRequest{PeerURLs: []string{"nonsense"}})
	wantStatus(t, err, rpctypes.ErrGRPCMemberBadURLs)
	_, err = follower.cluster.MemberUpdate(follower.ctx(), &pb.MemberUpdateRequest{ID: 7})
	wantStatus(t, err, rpctypes.ErrGRPCMemberBadURLs)
	wantEqual(t, "changes", len(changes), 4)
}

// The change may have been made, so the answer is not that it failed.
func TestLostAnswerOfAChangeOfMembersIsAnUnknownOutcome(t *testing.T) {
	p := startPair(t)
	reached, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	p.nodes[0].change = func(roster.Change) error { close(reached); <-release; return nil }
	result := make(chan error, 1)
	go func() {
		_, err := p.fronts[1].cluster.MemberRemove(p.fronts[1].ctx(), &pb.MemberRemoveRequest{ID: 7})
		result <- err
	}()
	<-reached
	go p.cable.cut(p.ids[0]) // it waits for the handler
	wantStatus(t, <-result, rpctypes.ErrGRPCTimeout)
}
