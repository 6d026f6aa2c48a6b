package conformance

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

// replacementRounds is how often TestClientsOutliveReplacedMembers replaces all members.
const replacementRounds = 2

// Each of three members is replaced by a new one, twice around, while clients use the cluster as in
// TestClientsOutliveRepeatedLeaderKills. Every call ends in time, with an answer or a retryable error. Acknowledged changes
// stay, and nothing has two holders.
func TestClientsOutliveReplacedMembers(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	g := startCluster(t, leasekeeper)
	spare := g.newMember("d")
	g.known = append(g.endpoints(), spare.grpcAddr)
	d := &drill{t: t, g: g, servers: append(slices.Clone(g.members), spare), log: newTally(), over: make(chan struct{})}
	d.history = d.watchAll()
	var working sync.WaitGroup
	workers := d.workers()
	for _, work := range workers {
		working.Go(work)
	}
	replaced := 0
	for range replacementRounds * len(g.members) {
		spare = g.replaceOldest(spare)
		replaced++
	}
	close(d.over)
	working.Wait()
	d.settle()
	d.log.report(t, replaced, len(workers))
}

// replaceOldest makes a new member join, removes the oldest one, and returns that one, ready to join again on an empty directory.
// Members are ordered by their age.
func (g *cluster) replaceOldest(with *server) (removed *server) {
	g.t.Helper()
	began := time.Now()
	peer := with.peerURL()
	g.untilMade("a member is added", func(at *server) error {
		_, err := at.stubs().MemberAdd(at.context(), &pb.MemberAddRequest{PeerURLs: []string{peer}, IsLearner: true})
		if statusIs(err, codes.FailedPrecondition, textPeerURLExists) {
			return nil // an attempt before, whose answer was lost, had added it
		}
		return err
	})
	id := g.members[len(g.members)-1].listedAs(peer).ID
	g.members = append(g.members, with)
	wantOK(g.t, "start of the new member", with.launch())
	g.untilMade("the new member gets a vote", func(at *server) error {
		_, err := at.stubs().MemberPromote(at.context(), &pb.MemberPromoteRequest{ID: id})
		if statusIs(err, codes.FailedPrecondition, textNotLearner) && !statusIs(err, codes.FailedPrecondition, textNotInSync) {
			return nil
		}
		return err
	})
	wantOK(g.t, "the new member", with.awaitReady())

	removed = g.members[0]
	leads := g.leader() == removed
	old := g.members[1].listedAs(removed.peerURL()).ID
	g.members = g.members[1:]
	g.untilMade("the oldest member is removed", func(at *server) error {
		_, err := at.stubs().MemberRemove(at.context(), &pb.MemberRemoveRequest{ID: old})
		if statusIs(err, codes.NotFound, textMemberNotFound) {
			return nil
		}
		return err
	})
	select {
	case <-removed.process.exited:
		removed.process = nil
	case <-time.After(waitLimit):
		g.t.Fatalf("the removed member %s has not ended", removed.name)
	}
	wantOK(g.t, "its directory is emptied", os.RemoveAll(removed.dir))
	removed.joins = true
	g.t.Logf("%s replaced %s (the leader: %v) within %v", with.name, removed.name, leads, time.Since(began).Round(time.Millisecond))
	return removed
}

// untilMade makes a change of the members. It asks one member after the other, and repeats what may be repeated.
func (g *cluster) untilMade(what string, change func(at *server) error) {
	g.t.Helper()
	turn := 0
	eventually(g.t, waitLimit, what, func() bool {
		turn++
		err := change(g.members[turn%len(g.members)])
		if err != nil && codeOf(err) != codes.Unavailable && !strings.Contains(err.Error(), textNotInSync) {
			g.t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}
