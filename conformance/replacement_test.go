package conformance

import (
	"context"
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

var replacementsFlag = flag.Int("replacements", 2, "how often TestClientsOutliveReplacedMembers replaces all members")

// All three members are replaced by new ones, one after the other and twice around, while clients use the cluster as in
// TestClientsOutliveRepeatedLeaderKills. Every call ends in time, with an answer or a retryable error. Acknowledged writes
// stay, registers are linearizable, leases that are kept alive do not end, no lock has two holders, and no watch misses an
// event.
func TestClientsOutliveReplacedMembers(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	g := startCluster(t, leasekeeper)
	spare := g.newMember("d")
	g.reachable = append(g.reachable, spare)
	d := startDrill(g)
	d.registers.progress()
	leaders := 0
	for round := range *replacementsFlag {
		for old := slices.Clone(g.members); len(old) > 0; {
			removed := g.leader() // of a round, the leader goes first
			if !slices.Contains(old, removed) {
				removed = old[0]
			}
			began := time.Now()
			g.join(spare)
			led := g.leader() == removed
			if led {
				leaders++
			}
			g.removed(removed)
			d.registers.progress()
			t.Logf("round %d: %s has replaced %s (the leader: %v) within %v", round+1, spare.name, removed.name, led, time.Since(began).Round(time.Millisecond))
			old = slices.DeleteFunc(old, func(m *server) bool { return m == removed })
			spare = removed
		}
	}
	if leaders == 0 {
		t.Error("no leader was replaced")
	}
	d.end(*replacementsFlag * len(g.members))
}

// join adds a server to the cluster: as a learner with an empty directory, and with a vote when it has caught up.
func (g *cluster) join(m *server) {
	g.t.Helper()
	peer := m.peerURL()
	g.change(g.members, "a member is added", func(ctx context.Context, at stubs, repeated bool) error {
		_, err := at.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{peer}, IsLearner: true})
		if repeated && statusIs(err, codes.FailedPrecondition, textPeerURLExists) {
			return nil
		}
		return err
	})
	id := g.idOf(m)
	wantOK(g.t, "emptying the directory", os.RemoveAll(m.dir))
	g.members = append(g.members, m)
	m.joins = true
	wantOK(g.t, "start of the new member", m.launch())
	g.change(g.members, "the new member gets a vote", func(ctx context.Context, at stubs, repeated bool) error {
		_, err := at.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: id})
		if repeated && statusIs(err, codes.FailedPrecondition, textNotLearner) && !statusIs(err, codes.FailedPrecondition, textNotInSync) {
			return nil
		}
		return err
	})
	wantOK(g.t, "the new member", m.awaitReady())
}

// removed removes a member, which then ends by itself and says why. The member itself is the first to be asked.
func (g *cluster) removed(m *server) {
	g.t.Helper()
	id := g.idOf(m)
	g.members = slices.DeleteFunc(g.members, func(other *server) bool { return other == m })
	g.change(append([]*server{m}, g.members...), "a member is removed", func(ctx context.Context, at stubs, repeated bool) error {
		_, err := at.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id})
		if repeated && statusIs(err, codes.NotFound, textMemberNotFound) {
			return nil
		}
		return err
	})
	select {
	case <-m.process.Exited():
		wantEqual(g.t, "exit code of the removed member", m.process.ExitCode(), 1)
		m.process = nil
	case <-time.After(waitLimit):
		g.t.Fatalf("the removed member %s has not ended", m.name)
	}
}

// idOf returns the id under which the members list a server.
func (g *cluster) idOf(m *server) (id uint64) {
	g.t.Helper()
	g.change(g.members, "the members are listed", func(ctx context.Context, at stubs, _ bool) error {
		list, err := at.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
		for _, listed := range list.GetMembers() {
			if slices.Contains(listed.PeerURLs, m.peerURL()) {
				id = listed.ID
			}
		}
		return err
	})
	if id == 0 {
		g.t.Fatalf("%s is not listed", m.name)
	}
	return id
}

// change asks one server after the other, until one of them answers. repeated means that an earlier attempt may have made
// the change.
func (g *cluster) change(servers []*server, what string, try func(ctx context.Context, at stubs, repeated bool) error) {
	g.t.Helper()
	attempt := 0
	eventually(g.t, waitLimit, what, func() bool {
		at := servers[attempt%len(servers)]
		ctx, cancel := context.WithTimeout(g.t.Context(), callLimit)
		defer cancel()
		err := try(ctx, at.stubs(), attempt > 0)
		attempt++
		// A learner lags at first, and a leader takes a moment to notice that a member is up.
		if err != nil && !mayBeTriedAgain(err) && !statusIs(err, codes.FailedPrecondition, textNotInSync) && !statusIs(err, codes.FailedPrecondition, textNotEnough) {
			g.t.Fatalf("%s: %s answers: %v", what, at.name, err)
		}
		return err == nil
	})
}
