package conformance

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// eachCluster runs one test against a cluster of three of each server.
func eachCluster(t *testing.T, test func(t *testing.T, g *cluster)) {
	t.Helper()
	t.Parallel()
	for _, name := range programs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, startCluster(t, name))
		})
	}
}

// eachMember asks the leader, and then the others.
func (g *cluster) eachMember(test func(t *testing.T, s *server)) {
	leader := g.leader()
	members := append([]*server{leader}, slices.DeleteFunc(slices.Clone(g.members), func(m *server) bool { return m == leader })...)
	for i, m := range members {
		what := fmt.Sprint("follower ", i)
		if m == leader {
			what = "leader"
		}
		g.t.Run(what, func(t *testing.T) {
			was := m.t
			m.t = t
			defer func() { m.t = was }()
			test(t, m)
		})
	}
}

// Every request works through every member, and its effect is visible at the others.
func TestEveryRequestThroughEveryMember(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		g.eachMember(func(t *testing.T, s *server) {
			g.keyRequests(t, s)
			g.leaseRequests(t, s)
			g.lockRequests(t, s)
			g.memberRequests(t, s)
		})
	})
}

// seenByOthers reads a key at the other members.
func (g *cluster) seenByOthers(s *server, key, want string) {
	s.t.Helper()
	for _, m := range g.members {
		resp, err := m.stubs().Range(s.context(), &pb.RangeRequest{Key: []byte(key)})
		wantOK(s.t, "get", err)
		got := "nothing"
		if len(resp.Kvs) > 0 {
			got = string(resp.Kvs[0].Value)
		}
		wantEqual(s.t, fmt.Sprintf("%s, after %s, at %s", key, s.name, m.name), got, want)
	}
}

func (g *cluster) keyRequests(t *testing.T, s *server) {
	st, stubs, key := s.store(), s.stubs(), s.name+"/key"
	w := s.watch()
	put := st.put(key, "1")
	id := w.watchKey(key, "", put.Header.Revision)
	g.seenByOthers(s, key, "1")
	wantEqual(t, "txn", st.txn(then(opPut(key, "2"), opRange(key, ""))).Succeeded, true)
	g.seenByOthers(s, key, "2")
	read := st.txn(then(opRange(key, "")))
	wantEqual(t, "txn that reads", string(read.Responses[0].GetResponseRange().Kvs[0].Value), "2")
	wantEqual(t, "delete", st.delete(key).Deleted, 1)
	g.seenByOthers(s, key, "nothing")
	last := st.put(key, "3").Header.Revision
	r := put.Header.Revision
	wantEqual(t, "watched", w.eventsUntil(last)[id], lines(
		fmt.Sprintf("PUT %s=1 c%d m%d v1", key, r, r), fmt.Sprintf("PUT %s=2 c%d m%d v2", key, r, r+1),
		fmt.Sprintf("DELETE %s= c0 m%d v0", key, r+2), fmt.Sprintf("PUT %s=3 c%d m%d v1", key, r+3, r+3)))
	w.cancel(id)
	wantEqual(t, "watcher canceled", w.next().Canceled, true)
	wantEqual(t, "the past", string(st.get(key, clientv3.WithRev(r)).Kvs[0].Value), "1")
	eventually(t, waitLimit, "a serializable read shows it", func() bool {
		resp, err := stubs.Range(s.context(), &pb.RangeRequest{Key: []byte(key), Serializable: true})
		wantOK(t, "serializable read", err)
		return len(resp.Kvs) == 1 && string(resp.Kvs[0].Value) == "3"
	})
	st.compact(last)
	for _, m := range g.members {
		eventually(t, waitLimit, "compacted at "+m.name, func() bool {
			_, err := m.stubs().Range(s.context(), &pb.RangeRequest{Key: []byte(key), Revision: last - 1})
			return codeOf(err) == codes.OutOfRange
		})
	}
}

func (g *cluster) leaseRequests(t *testing.T, s *server) {
	st, key := s.store(), s.name+"/leased"
	lease := st.grant(60).ID
	st.put(key, "1", clientv3.WithLease(lease))
	for _, m := range g.members {
		k := m.keepAlive()
		k.send(int64(lease))
		k.receive(int64(lease), 60)
		resp, err := m.stubs().LeaseTimeToLive(s.context(), &pb.LeaseTimeToLiveRequest{ID: int64(lease), Keys: true})
		wantOK(t, "time to live", err)
		wantEqual(t, "keys at "+m.name, fmt.Sprintf("%s", resp.Keys), "["+key+"]")
		wantEqual(t, "granted", resp.GrantedTTL, 60)
	}
	eventually(t, waitLimit, "the lease is listed", func() bool {
		all, err := st.c.Leases(s.context())
		wantOK(t, "leases", err)
		return slices.ContainsFunc(all.Leases, func(l clientv3.LeaseStatus) bool { return l.ID == lease })
	})
	st.revoke(lease)
	g.seenByOthers(s, key, "nothing")
}

func (g *cluster) lockRequests(t *testing.T, s *server) {
	// A waiter at one member comes after the holder at another.
	l, next, name := s.locks(), g.members[(slices.Index(g.members, s)+1)%3], s.name+"/lock"
	held := l.lock(name, 0)
	waiting := next.locks().beginLock(s.context(), name, 0)
	s.store().awaitMembers(name, 2)
	l.unlock(held)
	wantOK(t, "lock", due(t, "lock", waitLimit, waiting))

	es, office := s.elections(), []byte(s.name+"/office")
	observed, err := next.elections().Observe(s.context(), &epb.LeaderRequest{Name: office})
	wantOK(t, "observe", err)
	won, err := es.Campaign(s.context(), &epb.CampaignRequest{Name: office, Value: []byte("one"), Lease: int64(s.store().grant(60).ID)})
	wantOK(t, "campaign", err)
	_, err = es.Proclaim(s.context(), &epb.ProclaimRequest{Leader: won.Leader, Value: []byte("two")})
	wantOK(t, "proclaim", err)
	for _, m := range g.members {
		said, err := m.elections().Leader(s.context(), &epb.LeaderRequest{Name: office})
		wantOK(t, "leader", err)
		wantEqual(t, "who is in office, at "+m.name, string(said.Kv.Value), "two")
	}
	for said := ""; said != "two"; {
		resp, err := observed.Recv()
		wantOK(t, "observe", err)
		said = string(resp.Kv.Value)
	}
	_, err = es.Resign(s.context(), &epb.ResignRequest{Leader: won.Leader})
	wantOK(t, "resign", err)
	wantEqual(t, "in office afterwards", s.store().members(string(office)), 0)
	if s.ours() {
		name := s.name + "/name"
		_, first := s.acquire(name, false, "HELD")
		waiting, _ := next.acquire(name, true, "WAITING")
		wantOK(t, "release", s.release(name, first.Result.Lease))
		waiting.want("HELD")
	}
}

func (g *cluster) memberRequests(t *testing.T, s *server) {
	stubs := s.stubs()
	status, err := stubs.Status(s.context(), &pb.StatusRequest{})
	wantOK(t, "status", err)
	leader, err := g.leader().status()
	wantOK(t, "status of the leader", err)
	wantEqual(t, "leader", status.Leader, leader.Header.MemberId)
	wantEqual(t, "errors", len(status.Errors), 0)
	wantEqual(t, "auth", must(stubs.auth().AuthStatus(s.context(), &pb.AuthStatusRequest{})).Enabled, false)
	wantEqual(t, "alarms", len(must(stubs.Alarm(s.context(), &pb.AlarmRequest{})).Alarms), 0)
	wantEqual(t, "downgrade", must(stubs.Downgrade(s.context(), &pb.DowngradeRequest{Action: pb.DowngradeRequest_CANCEL})).Version, "3.7")
	must(stubs.Defragment(s.context(), &pb.DefragmentRequest{}))
	must(stubs.Hash(s.context(), &pb.HashRequest{}))
	snapshot, err := stubs.Snapshot(s.context(), &pb.SnapshotRequest{})
	wantOK(t, "snapshot", err)
	var data []byte
	for {
		resp, err := snapshot.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		wantOK(t, "snapshot", err)
		data = append(data, resp.Blob...)
	}
	checkSnapshot(t, data)
	health := must(healthpb.NewHealthClient(stubs.conn).Check(s.context(), &healthpb.HealthCheckRequest{}))
	wantEqual(t, "health", health.Status, healthpb.HealthCheckResponse_SERVING)
	for _, path := range []string{"/readyz", "/livez", "/health", "/version", "/metrics"} {
		code, _, err := httpGet("http://" + s.httpAddr + path)
		wantOK(t, path, err)
		wantEqual(t, path, code, 200)
	}
}

func (st stubs) auth() pb.AuthClient { return pb.NewAuthClient(st.conn) }

// must is for calls that have to succeed: their test ends with a panic that says why not.
func must[T any](resp T, err error) T {
	if err != nil {
		panic(err)
	}
	return resp
}

// Each member puts its own id into headers, no matter which member handled the request.
func TestHeadersNameTheAnsweringMember(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		seen := make(map[uint64]bool)
		g.eachMember(func(t *testing.T, s *server) {
			st, stubs := s.store(), s.stubs()
			status, err := stubs.Status(s.context(), &pb.StatusRequest{})
			wantOK(t, "status", err)
			want := *s.identity(status.Header)
			if seen[want.member] || want.member == 0 {
				t.Errorf("two members are %x", want.member)
			}
			seen[want.member] = true
			wantEqual(t, "put", *s.identity(st.put("a", "1").Header), want)
			lease := st.grant(60)
			wantEqual(t, "grant", *s.identity(lease.ResponseHeader), want)
			wantEqual(t, "range", *s.identity(st.get("a").Header), want)
			wantEqual(t, "txn", *s.identity(st.txn(then(opPut("a", "2"))).Header), want)
			wantEqual(t, "delete", *s.identity(st.delete("a").Header), want)
			ttl, err := st.c.TimeToLive(s.context(), lease.ID)
			wantOK(t, "time to live", err)
			wantEqual(t, "time to live", *s.identity(ttl.ResponseHeader), want)
			wantEqual(t, "revoke", *s.identity(st.revoke(lease.ID).Header), want)
			created := s.watch().create(&pb.WatchCreateRequest{Key: []byte("a")})
			wantEqual(t, "watch", *s.identity(created.Header), want)
		})
		wantEqual(t, "members", len(seen), 3)
	})
}

// All members list the same three, with their addresses for clients.
func TestMemberListOfACluster(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		want := make(map[string]string)
		for _, m := range g.members {
			want[m.name] = fmt.Sprintf("[http://%s] [http://%s]", m.peerAddr, m.grpcAddr)
		}
		for _, m := range g.members {
			st, err := m.status()
			wantOK(t, "status", err)
			// Where clients reach the others a member of ours asks them after it has started.
			eventually(t, waitLimit, m.name+" lists all members", func() bool {
				resp, err := m.stubs().MemberList(m.context(), &pb.MemberListRequest{Linearizable: true})
				wantOK(t, "member list", err)
				wantEqual(t, "members", len(resp.Members), 3)
				wantEqual(t, "header", resp.Header.MemberId, st.Header.MemberId)
				for _, listed := range resp.Members {
					if fmt.Sprint(listed.PeerURLs, " ", listed.ClientURLs) != want[listed.Name] || listed.IsLearner {
						return false
					}
					if listed.Name == m.name {
						wantEqual(t, "its own id", listed.ID, st.Header.MemberId)
					}
				}
				return true
			})
		}
		c := g.members[0].client()
		wantOK(t, "synchronizing endpoints", c.Sync(g.members[0].context()))
		got, all := slices.Sorted(slices.Values(c.Endpoints())), g.endpoints()
		slices.Sort(all)
		wantEqual(t, "endpoints", strings.Join(got, ","), "http://"+strings.Join(all, ",http://"))
		out := g.members[1].mustCtl("endpoint", "health", "--cluster")
		wantEqual(t, "healthy: "+out, strings.Count(out, "is healthy"), 3)
		statuses := g.members[1].mustCtl("endpoint", "status", "--cluster")
		wantEqual(t, "status lines: "+statuses, strings.Count(statuses, "\n"), 3)
	})
}

// Only the leader hands over, and to the requested member.
func TestOnlyTheLeaderMovesLeadership(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		leader := g.leader()
		before, err := leader.status()
		wantOK(t, "status", err)
		var others []*server
		for _, m := range g.members {
			if m != leader {
				others = append(others, m)
			}
		}
		target, err := others[0].status()
		wantOK(t, "status", err)
		to := &pb.MoveLeaderRequest{TargetID: target.Header.MemberId}
		_, err = others[1].stubs().MoveLeader(leader.context(), to)
		wantStatus(t, "at a member that does not lead", err, codes.FailedPrecondition, "etcdserver: not leader")
		_, err = leader.stubs().MoveLeader(leader.context(), &pb.MoveLeaderRequest{TargetID: 1})
		wantStatus(t, "to nobody", err, codes.FailedPrecondition, "etcdserver: bad leader transferee")
		leader.store().put("a", "1") // 2
		_, err = leader.stubs().MoveLeader(leader.context(), to)
		wantOK(t, "move", err)
		wantEqual(t, "leader", g.leader().name, others[0].name)
		after, err := leader.status()
		wantOK(t, "status", err)
		if after.RaftTerm <= before.RaftTerm {
			t.Errorf("term %d after %d", after.RaftTerm, before.RaftTerm)
		}
		g.seenByOthers(leader, "a", "1")
		wantEqual(t, "a handover is no write", leader.store().revision(), 2)
		// etcdctl finds the leader by itself among the endpoints that it is given.
		all := leader
		all.endpoints = g.endpoints()
		out := all.mustCtl("move-leader", fmt.Sprintf("%x", before.Header.MemberId))
		wantEqual(t, "move-leader", out, fmt.Sprintf("Leadership transferred from %x to %x\n", target.Header.MemberId, before.Header.MemberId))
		wantEqual(t, "leader", g.leader().name, leader.name)
	})
}

// Members that have the same keys have the same hash, at each revision.
func TestHashesOfMembersAgree(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		st := g.members[0].store()
		for i := range 10 {
			st.put(fmt.Sprint("key", i%4), fmt.Sprint(i)) // 2 to 11
		}
		st.put("leased", "", clientv3.WithLease(st.grant(60).ID)) // 12
		st.delete("key0")                                         // 13
		for _, compacted := range []int64{0, 6} {
			if compacted > 0 {
				st.compact(compacted)
			}
			for _, revision := range []int64{8, 13} {
				hashes := make(map[uint32]bool)
				for _, m := range g.members {
					// A member that is behind says so, or has not compacted yet.
					eventually(t, waitLimit, m.name+" is up to date", func() bool {
						resp, err := m.stubs().HashKV(m.context(), &pb.HashKVRequest{Revision: revision})
						if err != nil {
							wantStatus(t, "hashkv", err, codes.OutOfRange, textFutureRevision)
							return false
						}
						if compacted > 0 && resp.CompactRevision != compacted {
							return false
						}
						hashes[resp.Hash] = true
						return true
					})
				}
				wantEqual(t, fmt.Sprintf("hashes at revision %d", revision), len(hashes), 1)
			}
		}
	})
}

// A member also reads a revision that another member has returned, even by a serializable read. In etcd it may not have the
// revision yet.
func TestMembersReadRevisionsThatOtherMembersReturned(t *testing.T) {
	t.Parallel()
	if len(chosen(leasekeeper, follower, everyone)) == 0 {
		return
	}
	g := startCluster(t, leasekeeper)
	leader := g.leader()
	st := leader.store()
	for _, m := range g.members {
		at := m.store()
		for range 100 {
			revision := st.put("a", "").Header.Revision
			resp := at.get("a", clientv3.WithRev(revision), clientv3.WithSerializable())
			wantEqual(t, "revision", resp.Kvs[0].ModRevision, revision)
			_, err := at.c.Txn(m.context()).Then(clientv3.OpGet("a", clientv3.WithRev(revision), clientv3.WithSerializable())).Commit()
			wantOK(t, "txn", err)
		}
		_, err := m.stubs().Range(m.context(), &pb.RangeRequest{Key: []byte("a"), Revision: 1 << 40, Serializable: true})
		wantStatus(t, "of the future", err, codes.OutOfRange, textFutureRevision)
	}
}

// The alarm of one member is listed and lifted at any.
func TestAlarmsOfMembers(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		leader := g.leader()
		st, err := leader.status()
		wantOK(t, "status", err)
		own := st.Header.MemberId
		for _, m := range g.members {
			stubs := m.stubs()
			_, err := stubs.Alarm(m.context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: own, Alarm: pb.AlarmType_NOSPACE})
			wantOK(t, "raise", err)
			for _, asked := range g.members {
				eventually(t, waitLimit, "listed at "+asked.name, func() bool {
					resp, err := asked.stubs().Alarm(m.context(), &pb.AlarmRequest{})
					wantOK(t, "list", err)
					return len(resp.Alarms) == 1 && resp.Alarms[0].MemberID == own && resp.Alarms[0].Alarm == pb.AlarmType_NOSPACE
				})
				_, err := asked.stubs().Put(m.context(), &pb.PutRequest{Key: []byte("a")})
				wantStatus(t, "put", err, codes.ResourceExhausted, textNoSpace)
			}
			_, err = stubs.Alarm(m.context(), &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: own, Alarm: pb.AlarmType_NOSPACE})
			wantOK(t, "lift", err)
			eventually(t, waitLimit, "puts go on", func() bool {
				_, err := stubs.Put(m.context(), &pb.PutRequest{Key: []byte("a")})
				return err == nil
			})
		}
	})
}

// Two of three members serve, through the same member as before. One alone refuses all authoritative requests.
func TestTwoOfThreeMembersServe(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		leader := g.leader()
		s := g.members[(slices.Index(g.members, leader)+1)%3]
		other := g.members[(slices.Index(g.members, leader)+2)%3]
		st := s.store()
		st.put("a", "1")
		leader.kill()
		eventually(t, waitLimit, "a write at a member that is left", func() bool {
			_, err := st.c.Put(s.context(), "a", "2")
			return err == nil
		})
		wantEqual(t, "read", string(st.get("a").Kvs[0].Value), "2")
		other.kill()
		inTime := func(what string, ask func() error) error {
			began := time.Now()
			err := ask()
			if took := time.Since(began); took > callLimit {
				t.Errorf("%s at one of three took %v: %v", what, took, err)
			}
			return err
		}
		err := inTime("a write", func() error {
			_, err := s.stubs().Put(s.context(), &pb.PutRequest{Key: []byte("a")})
			return err
		})
		wantEqual(t, "a write at one of three", codeOf(err), codes.Unavailable)
		// The other member may have been the leader: the rest of its lease passes first.
		eventually(t, waitLimit, "a read at one of three is refused", func() bool {
			return codeOf(inTime("a read", func() error {
				_, err := s.stubs().Range(s.context(), &pb.RangeRequest{Key: []byte("a")})
				return err
			})) == codes.Unavailable
		})
		resp, err := s.stubs().Range(s.context(), &pb.RangeRequest{Key: []byte("a"), Serializable: true})
		wantOK(t, "serializable read", err)
		wantEqual(t, "serializable read", string(resp.Kvs[0].Value), "2")
		leader.start()
		eventually(t, waitLimit, "a write at one of two", func() bool {
			_, err := st.c.Put(s.context(), "a", "3")
			return err == nil
		})
	})
}
