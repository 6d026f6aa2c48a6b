package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// patient is a read timeout that a busy machine does not exceed.
const patient = 10 * time.Second

func TestThreeMembersServeAsOneCluster(t *testing.T) {
	tr := startTrio(t, patient)
	for name, test := range map[string]func(*testing.T, *trio){
		"every endpoint serves":    testEveryEndpointServes,
		"members are listed":       testMembersAreListed,
		"members are changed":      testMembersAreChanged,
		"leadership is moved":      testLeadershipIsMoved,
		"alarms of all members":    testAlarmsOfAllMembers,
		"metrics of other members": testMetricsOfOtherMembers,
		"locks outlive a leader":   testLocksOutliveALeader,
	} {
		t.Run(name, func(t *testing.T) { test(t, tr.in(t)) })
	}
}

// Every call succeeds at every endpoint, and shows one state.
func testEveryEndpointServes(t *testing.T, tr *trio) {
	for i, m := range tr.members {
		key := fmt.Sprintf("k%d", i)
		m.grant(60, int64(i)+1)
		put, err := m.kv.Put(m.ctx(), &pb.PutRequest{Key: []byte(key), Lease: int64(i) + 1})
		wantOK(t, err)
		wantEqual(t, "member", put.Header.MemberId, m.id)
		wantEqual(t, "cluster", put.Header.ClusterId, 77)
		for _, other := range tr.members {
			got, err := other.kv.Range(other.ctx(), &pb.RangeRequest{Key: []byte(key)})
			wantOK(t, err)
			wantEqual(t, "keys read at once elsewhere", len(got.Kvs), 1)
			wantEqual(t, "member that read", got.Header.MemberId, other.id)
			ttl, err := other.lease.LeaseTimeToLive(other.ctx(), &pb.LeaseTimeToLiveRequest{ID: int64(i) + 1, Keys: true})
			wantOK(t, err)
			wantEqual(t, "keys of the lease", len(ttl.Keys), 1)
			renewOnce(t, other.front, int64(i)+1)
		}
		watched, err := m.watch.Watch(m.ctx())
		wantOK(t, err)
		wantOK(t, watched.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte(key), StartRevision: 1}}}))
		for events := 0; events == 0; {
			resp, err := watched.Recv()
			wantOK(t, err)
			events = len(resp.Events)
		}
		locked, err := v3lockpb.NewLockClient(m.conn).Lock(m.ctx(), &v3lockpb.LockRequest{Name: []byte("m")})
		wantOK(t, err)
		_, err = v3lockpb.NewLockClient(m.conn).Unlock(m.ctx(), &v3lockpb.UnlockRequest{Key: locked.Key})
		wantOK(t, err)
		won, err := v3electionpb.NewElectionClient(m.conn).Campaign(m.ctx(), &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: int64(i) + 1})
		wantOK(t, err)
		_, err = v3electionpb.NewElectionClient(m.conn).Leader(m.ctx(), &v3electionpb.LeaderRequest{Name: []byte("e")})
		wantOK(t, err)
		_, err = v3electionpb.NewElectionClient(m.conn).Resign(m.ctx(), &v3electionpb.ResignRequest{Leader: won.Leader})
		wantOK(t, err)
		acquireAt(t, m.front, fmt.Sprintf("n%d", i), int64(i)+100)
		code, _ := m.get("/readyz")
		wantEqual(t, "/readyz", code, http.StatusOK)
	}
}

// renewOnce renews a lease over both protocols, once each.
func renewOnce(t *testing.T, f *front, lease int64) {
	t.Helper()
	alive, err := f.lease.LeaseKeepAlive(f.ctx())
	wantOK(t, err)
	wantOK(t, alive.Send(&pb.LeaseKeepAliveRequest{ID: lease}))
	resp, err := alive.Recv()
	wantOK(t, err)
	if resp.TTL <= 0 {
		t.Errorf("lease %d was not renewed: %v", lease, resp)
	}
	renew, err := leasekeeperv1.NewLeasekeeperClient(f.conn).Renew(f.ctx())
	wantOK(t, err)
	wantOK(t, renew.Send(&leasekeeperv1.RenewRequest{Number: 1, Leases: []int64{lease, lease + 1000}}))
	for refused := 0; refused == 0; {
		resp, err := renew.Recv()
		wantOK(t, err)
		refused = len(resp.Refused)
		if refused == 1 {
			wantEqual(t, "refused", resp.Refused[0].Place, 1)
			wantEqual(t, "state", resp.Refused[0].State, leasekeeperv1.RefusedRenewal_GONE)
		}
	}
}

// When a leader stops properly, the other members serve, and calls at them do not fail.
func TestCallsSucceedWhileTheLeaderStops(t *testing.T) {
	tr := startTrio(t, patient)
	leader, follower := tr.leader()
	follower.grant(60, 1)
	stopped := make(chan struct{})
	go func() { defer close(stopped); leader.stop(t) }()
	for i := 0; ; i++ {
		follower.put(fmt.Sprintf("k%d", i), "v")
		renewOnce(t, follower.front, 1)
		select {
		case <-stopped:
		default:
			continue
		}
		break
	}
	eventually(t, "another leads", func() bool { id, _ := follower.node.Leader(); return id != 0 && id != leader.id })
	follower.put("after", "v")
}

// A member that hears its leader but cannot reach it reports that it is not ready, and why, until it can again.
func TestMemberThatCannotReachTheLeaderIsNotReady(t *testing.T) {
	tr := startTrio(t, 200*time.Millisecond)
	leader, follower := tr.leader()
	probe := func(m *trioMember) int { code, _ := m.get("/readyz"); return code }
	for _, m := range tr.members {
		eventually(t, "all members are ready", func() bool { return probe(m) == http.StatusOK })
	}
	follower.socket.kept.Store(leader.id)
	eventually(t, "the member is not ready", func() bool { return probe(follower) == http.StatusServiceUnavailable })
	if _, body := follower.get("/readyz"); !strings.Contains(body, "hears a leader") {
		t.Errorf("/readyz: %s", body)
	}
	resp, err := follower.health.Check(follower.ctx(), &healthpb.HealthCheckRequest{})
	wantOK(t, err)
	wantEqual(t, "status", resp.Status, healthpb.HealthCheckResponse_NOT_SERVING)
	code, _ := follower.get("/livez")
	wantEqual(t, "/livez", code, http.StatusOK)
	for _, m := range tr.members {
		if m != follower {
			wantEqual(t, "/readyz of the others", probe(m), http.StatusOK)
		}
	}
	follower.socket.kept.Store(0)
	eventually(t, "the member is ready again", func() bool { return probe(follower) == http.StatusOK })
}

// Without a majority every linearizable request fails, at once and on every member.
func TestAMinorityServesNothing(t *testing.T) {
	tr := startTrio(t, 200*time.Millisecond)
	left := tr.members[0]
	left.put("k", "v")
	tr.members[1].stop(t)
	tr.members[2].stop(t)
	eventually(t, "the member knows that there is no leader", func() bool { code, _ := left.get("/readyz"); return code != http.StatusOK })
	_, err := left.kv.Put(left.ctx(), &pb.PutRequest{Key: []byte("k")})
	wantCode(t, err, codes.Unavailable)
	_, err = left.kv.Range(left.ctx(), &pb.RangeRequest{Key: []byte("k")})
	wantCode(t, err, codes.Unavailable)
	got, err := left.kv.Range(left.ctx(), &pb.RangeRequest{Key: []byte("k"), Serializable: true})
	wantOK(t, err)
	wantEqual(t, "keys", len(got.Kvs), 1)
	list, err := leasekeeperv1.NewMembersClient(left.conn).List(left.ctx(), &leasekeeperv1.ListMembersRequest{})
	wantOK(t, err)
	for i, m := range list.Members {
		wantEqual(t, "it answers", m.Trouble == "", i == 0)
	}
}

func testMembersAreListed(t *testing.T, tr *trio) {
	leader, _ := tr.leader()
	for _, m := range tr.members {
		var list *pb.MemberListResponse
		eventually(t, "all members have reported their client URLs", func() bool {
			var err error
			list, err = m.cluster.MemberList(m.ctx(), &pb.MemberListRequest{Linearizable: true})
			wantOK(t, err)
			for _, listed := range list.Members {
				if len(listed.ClientURLs) == 0 {
					return false
				}
			}
			return true
		})
		for i, listed := range list.Members {
			other := tr.members[i]
			wantEqual(t, "member", fmt.Sprint(listed.ID, listed.Name, listed.ClientURLs), fmt.Sprint(other.id, other.server.cfg.Name, other.server.clientURLs()))
			wantEqual(t, "URLs of peers", len(listed.PeerURLs), 1)
		}
		st, err := m.maintenance.Status(m.ctx(), &pb.StatusRequest{})
		wantOK(t, err)
		wantEqual(t, "leader", st.Leader, leader.id)

		all, err := leasekeeperv1.NewMembersClient(m.conn).List(m.ctx(), &leasekeeperv1.ListMembersRequest{})
		wantOK(t, err)
		wantEqual(t, "the answering member", all.MemberId, m.id)
		for i, said := range all.Members {
			wantEqual(t, "id", said.Id, tr.members[i].id)
			wantEqual(t, "trouble", said.Trouble+said.NotServing, "")
			wantEqual(t, "leads", said.Role == leasekeeperv1.Member_LEADER, said.Id == leader.id)
			wantEqual(t, "peers", len(said.Peers), 2)
		}
	}
}

func testLeadershipIsMoved(t *testing.T, tr *trio) {
	leader, follower := tr.leader()
	_, err := follower.maintenance.MoveLeader(follower.ctx(), &pb.MoveLeaderRequest{TargetID: follower.id})
	wantStatus(t, err, rpctypes.ErrGRPCNotLeader)
	_, err = leader.maintenance.MoveLeader(leader.ctx(), &pb.MoveLeaderRequest{TargetID: 99})
	wantStatus(t, err, rpctypes.ErrGRPCBadLeaderTransferee)
	_, err = leader.maintenance.MoveLeader(leader.ctx(), &pb.MoveLeaderRequest{TargetID: follower.id})
	wantOK(t, err)
	eventually(t, "the other leads", func() bool { return follower.server.forwarder.Leads() })

	// leasekeeper.v1 lists the members at any member.
	members := leasekeeperv1.NewMembersClient(leader.conn)
	_, err = members.TransferLeadership(leader.ctx(), &leasekeeperv1.TransferLeadershipRequest{To: 99})
	wantCode(t, err, codes.InvalidArgument)
	moved, err := members.TransferLeadership(leader.ctx(), &leasekeeperv1.TransferLeadershipRequest{To: leader.id})
	wantOK(t, err)
	wantEqual(t, "from and to", fmt.Sprint(moved.Former, moved.Leader), fmt.Sprint(follower.id, leader.id))
	moved, err = members.TransferLeadership(leader.ctx(), &leasekeeperv1.TransferLeadershipRequest{})
	wantOK(t, err)
	wantEqual(t, "another leads", moved.Leader != leader.id, true)
}

func testAlarmsOfAllMembers(t *testing.T, tr *trio) {
	asked := tr.members[0]
	do := func(r *pb.AlarmRequest) []*pb.AlarmMember {
		t.Helper()
		resp, err := asked.maintenance.Alarm(asked.ctx(), r)
		wantOK(t, err)
		return resp.Alarms
	}
	raised := do(&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: tr.members[1].id, Alarm: pb.AlarmType_NOSPACE})
	wantEqual(t, "raised", fmt.Sprint(len(raised), raised[0].MemberID), fmt.Sprint(1, tr.members[1].id))
	wantEqual(t, "listed", len(do(&pb.AlarmRequest{})), 1)
	wantEqual(t, "raised at all", len(do(&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE})), 3)
	_, err := asked.kv.Put(asked.ctx(), &pb.PutRequest{Key: []byte("k")})
	wantStatus(t, err, rpctypes.ErrGRPCNoSpace)
	wantEqual(t, "lifted at all", len(do(&pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE})), 3)
	wantEqual(t, "listed in the end", len(do(&pb.AlarmRequest{})), 0)
	asked.put("k", "v")
}

// Every metric of a cluster that the dashboard and the alert rules use exists, with one label value per other member.
func testMetricsOfOtherMembers(t *testing.T, tr *trio) {
	leader, follower := tr.leader()
	families, err := leader.server.metrics.registry.Gather()
	wantOK(t, err)
	known := make(map[string]int)
	for _, family := range families {
		known[family.GetName()] = len(family.Metric)
	}
	for _, name := range clusterMetrics() {
		if known[name] == 0 && name != "leasekeeper_peer_clock_rate_ppm" { // takes a while to appear
			t.Errorf("there is no %s", name)
		}
	}
	wantEqual(t, "series for peers", known["leasekeeper_peer_connected"], 2)
	before := follower.server.forwarder.Sent()
	follower.put("k", "v")
	wantEqual(t, "requests sent on", follower.server.forwarder.Sent()-before, 1)
}

// A client sees its own change through the same member, because the answer waits until the member has applied it.
func TestClientSeesItsOwnChangesAtItsMember(t *testing.T) {
	tr := startTrio(t, waitLimit)
	leader, follower := tr.leader()
	leader.socket.kept.Store(follower.id) // the follower receives no log entries
	seen := make(chan int, 1)
	go func() {
		defer close(seen)
		if _, err := follower.kv.Put(follower.ctx(), &pb.PutRequest{Key: []byte("k")}); err != nil {
			t.Errorf("put: %v", err)
			return
		}
		resp, err := follower.kv.Range(follower.ctx(), &pb.RangeRequest{Key: []byte("k"), Serializable: true})
		if err != nil {
			t.Errorf("range: %v", err)
			return
		}
		seen <- len(resp.Kvs)
	}()
	for leader.node.Header().Revision < 2 {
		time.Sleep(time.Millisecond)
	}
	early := time.NewTimer(100 * time.Millisecond) // a member that does not wait answers within this time
	defer early.Stop()
	select {
	case <-seen:
		t.Fatal("answered while the member does not have it")
	case <-early.C:
	}
	leader.socket.kept.Store(0)
	wantEqual(t, "keys seen", <-seen, 1)
}

// A member that does not receive its client's change answers nevertheless after some time, because the change is made.
func TestWriteThroughALaggingMemberIsAnswered(t *testing.T) {
	tr := startTrio(t, 200*time.Millisecond)
	leader, follower := tr.leader()
	leader.socket.kept.Store(follower.id)
	defer leader.socket.kept.Store(0)
	resp, err := follower.kv.Put(follower.ctx(), &pb.PutRequest{Key: []byte("k")})
	wantOK(t, err)
	wantEqual(t, "revision", resp.Header.Revision, 2)
}

// A member that does not listen yet reports no URL, so that no client is sent to an unused address.
func TestMemberNamesNoURLBeforeItListens(t *testing.T) {
	s, err := New(anyPort(), startNode(t))
	wantOK(t, err)
	defer func() { wantOK(t, s.Stop(context.Background())) }()
	own, err := s.ownMember(t.Context())
	wantOK(t, err)
	wantEqual(t, "URLs", len(own.ClientUrls), 0)
}

// A member was removed and does not know that yet. The leader refuses what this member forwards, before anything received
// it. So the client receives a refusal, and no unknown outcome.
func TestRequestThatTheLeaderRefusedToReceiveIsNoUnknownOutcome(t *testing.T) {
	tr := startTrio(t, DefaultReadTimeout)
	leader, removed := tr.leader()
	removed.put("k", "v")
	var rest []roster.Member
	for _, m := range leader.server.listed() {
		if m.ID != removed.id {
			rest = append(rest, m)
		}
	}
	leader.transport.SetMembers(rest)
	_, err := removed.kv.Put(removed.ctx(), &pb.PutRequest{Key: []byte("k"), Value: []byte("w")})
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	stream, err := leasekeeperv1.NewLeasekeeperClient(removed.conn).Acquire(removed.ctx(), &leasekeeperv1.AcquireRequest{
		Name: "n", TtlMs: 60_000, Holder: &leasekeeperv1.Holder{Id: "me"},
	})
	wantOK(t, err)
	_, err = stream.Recv()
	wantEqual(t, "reason", reasonIn(err), "UNAVAILABLE")
	wantEqual(t, "unknown outcomes", removed.server.metrics.refused["unknown_outcome"].Load(), 0)
	got, err := leader.kv.Range(leader.ctx(), &pb.RangeRequest{Key: []byte("k")})
	wantOK(t, err)
	wantEqual(t, "value", string(got.Kvs[0].Value), "v")
}
