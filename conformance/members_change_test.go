package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

// Texts of etcd's errors about members.
const (
	textMemberNotFound  = "etcdserver: member not found"
	textNotEnough       = "etcdserver: re-configuration failed due to not enough started members"
	textPeerURLExists   = "etcdserver: Peer URLs already exists"
	textBadURLs         = "etcdserver: given member URLs are invalid"
	textTooManyLearners = "etcdserver: too many learner members in cluster"
	textNotLearner      = "etcdserver: can only promote a learner member"
	textNotInSync       = "etcdserver: can only promote a learner member which is in sync with leader"
	textUnhealthy       = "etcdserver: unhealthy cluster"
)

// newMember is a member that is to join, and was not started yet.
func (g *cluster) newMember(name string) *server {
	g.t.Helper()
	m := newServer(g.t, g.members[0].target)
	if m.ours() {
		m.target = leasekeeper
	}
	m.name, m.cluster, m.joins = name, g, true
	m.grpcAddr, m.httpAddr, m.peerAddr = freeAddr(g.t), freeAddr(g.t), freeAddr(g.t)
	if !m.ours() {
		m.httpAddr = m.grpcAddr
	}
	return m
}

func (s *server) peerURL() string { return "http://" + s.peerAddr }

// listed returns the members as one of them lists them.
func (s *server) listed() []*pb.Member {
	s.t.Helper()
	list, err := s.stubs().MemberList(s.context(), &pb.MemberListRequest{Linearizable: true})
	wantOK(s.t, "member list", err)
	return list.Members
}

// listedAs returns what a member lists about another one, by its URL for members.
func (s *server) listedAs(url string) *pb.Member {
	s.t.Helper()
	for _, m := range s.listed() {
		if slices.Contains(m.PeerURLs, url) {
			return m
		}
	}
	return nil
}

// settled returns the member through which a test changes the members. etcd adds members only after its members were
// connected for five seconds; until then it is "unhealthy".
func (g *cluster) settled() *server {
	g.t.Helper()
	follower := g.other(g.leader())
	probe := "http://" + freeAddr(g.t)
	eventually(g.t, waitLimit, "members may be added", func() bool {
		added, err := follower.stubs().MemberAdd(follower.context(), &pb.MemberAddRequest{PeerURLs: []string{probe}, IsLearner: true})
		if statusIs(err, codes.Unavailable, textUnhealthy) {
			return false
		}
		wantOK(g.t, "member add", err)
		_, err = follower.stubs().MemberRemove(follower.context(), &pb.MemberRemoveRequest{ID: added.Member.ID})
		wantOK(g.t, "member remove", err)
		return true
	})
	return follower
}

func statusIs(err error, code codes.Code, text string) bool {
	return err != nil && codeOf(err) == code && strings.Contains(err.Error(), text)
}

// A member joins as a learner, gets a vote, serves, moves to another address in the list, and is removed: all by an
// unchanged etcdctl, through a follower.
func TestEtcdctlChangesTheMembers(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		s := g.settled()
		s.store().put("before", "1")
		d := g.newMember("d")
		out := s.mustCtl("member", "add", "d", "--peer-urls", d.peerURL(), "--learner")
		added := s.listedAs(d.peerURL())
		id, cluster := fmt.Sprintf("%x", added.ID), fmt.Sprintf("%x", must(s.status()).Header.ClusterId)
		wantEqual(t, "added", strings.SplitN(out, "\n", 2)[0], fmt.Sprintf("Member %16s added as learner to cluster %16s", id, cluster))
		for _, want := range []string{`ETCD_NAME="d"`, `ETCD_INITIAL_CLUSTER_STATE="existing"`, "d=" + d.peerURL()} {
			if !strings.Contains(out, want) {
				t.Errorf("member add printed %q without %s", out, want)
			}
		}
		wantEqual(t, "the new member", fmt.Sprint(added.Name, added.PeerURLs, added.ClientURLs, added.IsLearner), fmt.Sprintf("[%s] [] true", d.peerURL()))
		if line := s.mustCtl("member", "list"); !strings.Contains(line, id+", unstarted, , "+d.peerURL()+", , true\n") {
			t.Errorf("member list printed\n%s", line)
		}
		s.wantCtlError(1, textNotInSync, "member", "promote", id)

		g.members = append(g.members, d)
		wantOK(t, "start of the new member", d.launch())
		eventually(t, waitLimit, "it is promoted", func() bool {
			r := s.ctl("member", "promote", id)
			if r.code != 0 && !strings.Contains(r.stderr, textNotInSync) {
				t.Fatalf("member promote: %s", r.stderr)
			}
			if r.code == 0 {
				wantEqual(t, "promoted", r.stdout, fmt.Sprintf("Member %16s promoted in cluster %16s\n", id, cluster))
			}
			return r.code == 0
		})
		wantOK(t, "the new member", d.awaitReady())
		wantEqual(t, "a key of before", string(d.store().get("before").Kvs[0].Value), "1")
		d.store().put("after", "2")
		g.seenByOthers(s, "after", "2")
		eventually(t, waitLimit, "all members list it", func() bool {
			for _, m := range g.members {
				l := m.listedAs(d.peerURL())
				if fmt.Sprint(l.Name, l.ClientURLs, l.IsLearner) != fmt.Sprintf("d[http://%s] false", d.grpcAddr) || len(m.listed()) != 4 {
					return false
				}
			}
			return true
		})

		moved := "http://" + freeAddr(t)
		out = s.mustCtl("member", "update", id, "--peer-urls", moved)
		wantEqual(t, "updated", out, fmt.Sprintf("Member %16s updated in cluster %16s\n", id, cluster))
		wantEqual(t, "at the new address", s.listedAs(moved).ID, added.ID)
		s.mustCtl("member", "update", id, "--peer-urls", d.peerURL())

		out = s.mustCtl("member", "remove", id)
		wantEqual(t, "removed", out, fmt.Sprintf("Member %16s removed from cluster %16s\n", id, cluster))
		wantEqual(t, "members", len(s.listed()), 3)
		s.wantCtlError(1, textMemberNotFound, "member", "remove", id)
		g.members = g.members[:3]
		s.store().put("without", "3")
		select {
		case <-d.process.Exited():
		case <-time.After(waitLimit):
			t.Error("the removed member has not ended")
		}
	})
}

// Refusals have etcd's codes and texts.
func TestChangesOfMembersAreRefusedAsInEtcd(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		s := g.settled()
		stubs := s.stubs()
		voter := must(s.status()).Header.MemberId
		add := func(learner bool, urls ...string) error {
			_, err := stubs.MemberAdd(s.context(), &pb.MemberAddRequest{PeerURLs: urls, IsLearner: learner})
			return err
		}
		free := func() string { return "http://" + freeAddr(t) }
		for _, urls := range [][]string{nil, {"no-url"}, {"http://host"}, {"http://host:1/path"}, {"ftp://host:1"}, {free(), "bad"}} {
			wantStatus(t, fmt.Sprintf("add of %q", urls), add(true, urls...), codes.InvalidArgument, textBadURLs)
		}
		wantStatus(t, "an address twice", add(true, g.members[1].peerURL()), codes.FailedPrecondition, textPeerURLExists)
		wantStatus(t, "one of two addresses twice", add(true, free(), g.members[1].peerURL()), codes.FailedPrecondition, textPeerURLExists)
		_, err := stubs.MemberRemove(s.context(), &pb.MemberRemoveRequest{ID: 99})
		wantStatus(t, "remove", err, codes.NotFound, textMemberNotFound)
		_, err = stubs.MemberPromote(s.context(), &pb.MemberPromoteRequest{ID: 99})
		wantStatus(t, "promote", err, codes.NotFound, textMemberNotFound)
		_, err = stubs.MemberUpdate(s.context(), &pb.MemberUpdateRequest{ID: 99, PeerURLs: []string{free()}})
		wantStatus(t, "update", err, codes.NotFound, textMemberNotFound)
		_, err = stubs.MemberUpdate(s.context(), &pb.MemberUpdateRequest{ID: voter, PeerURLs: []string{g.other(s).peerURL()}})
		wantStatus(t, "update to another's address", err, codes.FailedPrecondition, textPeerURLExists)
		_, err = stubs.MemberPromote(s.context(), &pb.MemberPromoteRequest{ID: voter})
		wantStatus(t, "promotion of a voter", err, codes.FailedPrecondition, textNotLearner)

		learner := free()
		wantOK(t, "a learner", add(true, learner))
		wantStatus(t, "a second learner", add(true, free()), codes.FailedPrecondition, textTooManyLearners)
		id := s.listedAs(learner).ID
		_, err = stubs.MemberPromote(s.context(), &pb.MemberPromoteRequest{ID: id})
		wantStatus(t, "promotion before it has started", err, codes.FailedPrecondition, textNotInSync)
		removed, err := stubs.MemberRemove(s.context(), &pb.MemberRemoveRequest{ID: id})
		wantOK(t, "remove", err)
		wantEqual(t, "members left", len(removed.Members), 3)
		wantEqual(t, "revision of the header", removed.Header.Revision, 0)
		for what, err := range map[string]error{
			"remove":  second(stubs.MemberRemove(s.context(), &pb.MemberRemoveRequest{ID: id})),
			"promote": second(stubs.MemberPromote(s.context(), &pb.MemberPromoteRequest{ID: id})),
			"update":  second(stubs.MemberUpdate(s.context(), &pb.MemberUpdateRequest{ID: id, PeerURLs: []string{free()}})),
		} {
			wantStatus(t, what+" of a removed member", err, codes.NotFound, textMemberNotFound)
		}
		// etcd makes the same id of the same address in the same second.
		eventually(t, waitLimit, "its address is free again", func() bool {
			err := add(true, learner)
			if err != nil && codeOf(err) != codes.NotFound {
				t.Fatalf("its address is free again: %v", err)
			}
			return err == nil
		})
	})
}

func second[T any](_ T, err error) error { return err }

// other is a member besides s.
func (g *cluster) other(s *server) *server {
	for _, m := range g.members {
		if m != s {
			return m
		}
	}
	panic("unreachable: there are three")
}

// While one of three members is down, none is added as a voter, and none that runs is removed. The one that is down is.
func TestStrictChecksProtectTheMajority(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		s := g.settled()
		leader := g.leader()
		var down *server
		for _, m := range g.members {
			if m != s && m != leader {
				down = m
			}
		}
		lost := must(down.status()).Header.MemberId
		down.kill()
		ctx := s.context()
		refused := func(what string, try func() error) {
			t.Helper()
			wantStatus(t, what, try(), codes.Unavailable, textUnhealthy)
		}
		// Our leader takes at most two election timeouts to notice that a member is down. Until then it makes the change.
		time.Sleep(2500 * time.Millisecond)
		refused("the removal of a member that runs", func() error {
			_, err := s.stubs().MemberRemove(ctx, &pb.MemberRemoveRequest{ID: must(leader.status()).Header.MemberId})
			return err
		})
		refused("a new voter", func() error {
			_, err := s.stubs().MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"http://" + freeAddr(t)}})
			return err
		})
		_, err := s.stubs().MemberRemove(ctx, &pb.MemberRemoveRequest{ID: lost})
		wantOK(t, "removal of the member that is down", err)
		wantEqual(t, "members", len(s.listed()), 2)
		s.store().put("two", "1")
	})
}

// A leader that is lost for good is removed by the next one, also if that is the first change of the members.
func TestLostLeaderIsRemoved(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		lost := g.leader()
		id := must(lost.status()).Header.MemberId
		lost.kill()
		next := g.other(lost)
		eventually(t, waitLimit, "the lost leader is removed", func() bool {
			ctx, cancel := context.WithTimeout(next.context(), 5*time.Second)
			defer cancel()
			_, err := next.stubs().MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id})
			return err == nil || statusIs(err, codes.NotFound, "member not found")
		})
	})
}

// The last member stays.
func TestTheLastMemberIsNotRemoved(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		own := must(s.status()).Header.MemberId
		_, err := s.stubs().MemberRemove(s.context(), &pb.MemberRemoveRequest{ID: own})
		wantText(t, "removal", err, textNotEnough)
		s.store().put("a", "1")
	})
}

// Of several changes at once each is made, or refused, or its outcome is unknown: etcd answers nothing to a change that came
// while another one was under way. What was acknowledged is in the list.
func TestChangesOfMembersAtOnce(t *testing.T) {
	eachCluster(t, func(t *testing.T, g *cluster) {
		s := g.settled()
		type change struct {
			member uint64
			urls   []string
			err    error
		}
		var changes []*change
		for i, m := range s.listed() {
			// The second address is nowhere. The first one stays, so that the members find each other.
			changes = append(changes, &change{member: m.ID, urls: []string{m.PeerURLs[0], fmt.Sprintf("http://192.0.2.%d:2380", i+1)}})
		}
		var running sync.WaitGroup
		for i, c := range changes {
			at := g.members[i]
			running.Go(func() {
				ctx, cancel := context.WithTimeout(at.context(), 5*time.Second)
				defer cancel()
				_, c.err = at.stubs().MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: c.member, PeerURLs: c.urls})
			})
		}
		running.Wait()
		acknowledged := 0
		for _, c := range changes {
			listed := s.listedAs(c.urls[1])
			switch {
			case c.err == nil:
				acknowledged++
				if listed == nil || listed.ID != c.member {
					t.Errorf("the change of %x was acknowledged and is not in the list", c.member)
				}
			case codeOf(c.err) != codes.Unavailable && (s.ours() || codeOf(c.err) != codes.DeadlineExceeded):
				t.Errorf("a change at the same time as others: %v", c.err)
			}
		}
		if acknowledged == 0 {
			t.Error("none of the changes was made")
		}
	})
}
