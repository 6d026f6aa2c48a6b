//go:build linux

package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
)

var roundsFlag = flag.Int("rounds", 2, "how often TestAllMembersAreReplacedUnderLoad replaces all members; from the third round on leaders are paused meanwhile")

// All members are replaced by new ones, twice around, and clients keep what they have. Each new member has an id and a
// data directory of its own.
func TestAllMembersAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	w := newGrowingWorld(t)
	defer w.load.end(true)
	oldest := []int{0, 1, 2}
	seen := make(map[uint64]bool)
	for round := range *roundsFlag {
		for range size {
			began := time.Now()
			resume := func() {}
			if round >= 2 {
				resume = w.pauseLeader(oldest[0])
			}
			free := w.freeSlot()
			id := w.join(free)
			w.remove(oldest[0])
			resume()
			if seen[id] {
				t.Errorf("the id %x was used twice", id)
			}
			seen[id] = true
			oldest = append(oldest[1:], free)
			w.whole()
			w.load.progress()
			w.t.Logf("round %d: %s is member %x now, after %v", round+1, name(free), id, time.Since(began).Round(time.Millisecond))
		}
	}
	w.mustAgree(size)
}

// newGrowingWorld is a world whose clients know the free slot too.
func newGrowingWorld(t *testing.T) *world {
	g := startCluster(t, newProxied(t), "--election-timeout", electionTimeout.String(), "--master-lease", masterLease.String(),
		"--read-timeout", readTimeout.String())
	g.reach = slots
	w := newWorld(t, g)
	w.load.progress()
	return w
}

// freeSlot returns a slot without a member.
func (w *world) freeSlot() int {
	w.t.Helper()
	i := slices.IndexFunc(w.members[:], func(m *member) bool { return m.process == nil })
	if i < 0 {
		w.t.Fatal("no slot is free")
	}
	return i
}

// change sends one change of the members to one member after the other, until one of them makes it. done reports whether a
// list of members has the change: after an unknown outcome only the list shows it.
func (w *world) change(what string, done func([]*pb.Member) bool, try func(context.Context, stubs) error) {
	w.t.Helper()
	w.eventually(what, func() bool {
		for _, m := range w.members {
			if m.process == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), 2*attemptLimit)
			err := try(ctx, m.stubs)
			cancel()
			if err == nil {
				return true
			}
			known := rpctypes.Error(err)
			if !isTransient(err) && known != rpctypes.ErrMemberLearnerNotReady && known != rpctypes.ErrMemberNotEnoughStarted {
				members := w.list()
				if members != nil && !done(members) {
					w.t.Fatalf("%s: %v", what, err)
				}
				return members != nil // an earlier attempt has made the change
			}
		}
		return done(w.list())
	})
}

// list returns the members as a linearizable read has them; nil if no member answers.
func (w *world) list() []*pb.Member {
	for _, m := range w.members {
		if m.process == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), attemptLimit)
		list, err := m.changes.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
		cancel()
		if err == nil {
			return list.Members
		}
	}
	return nil
}

// at returns the member with this address for members; nil if there is none.
func at(members []*pb.Member, peer string) *pb.Member {
	i := slices.IndexFunc(members, func(m *pb.Member) bool { return slices.Contains(m.PeerURLs, "http://"+peer) })
	if i < 0 {
		return nil
	}
	return members[i]
}

// addLearner adds a learner in a free slot, and returns its id.
func (w *world) addLearner(slot int) (id uint64) {
	w.t.Helper()
	peer := w.net.peer(slot)
	added := func(members []*pb.Member) bool {
		m := at(members, peer)
		if m != nil {
			id = m.ID
		}
		return m != nil
	}
	w.change("a member is added", added, func(ctx context.Context, s stubs) error {
		answer, err := s.changes.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"http://" + peer}, IsLearner: true})
		id = answer.GetMember().GetID()
		return err
	})
	return id
}

// promote gives a learner a vote as soon as it has caught up.
func (w *world) promote(id uint64) {
	w.t.Helper()
	voter := func(members []*pb.Member) bool {
		return slices.ContainsFunc(members, func(m *pb.Member) bool { return m.ID == id && !m.IsLearner })
	}
	w.change("the new member gets a vote", voter, func(ctx context.Context, s stubs) error {
		_, err := s.changes.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: id})
		return err
	})
}

// join makes a new member in a free slot, on an empty data directory.
func (w *world) join(slot int) (id uint64) {
	w.t.Helper()
	id = w.addLearner(slot)
	w.startJoiner(slot)
	w.promote(id)
	return id
}

func (w *world) startJoiner(slot int) {
	w.t.Helper()
	m := w.members[slot]
	must(w.t, os.RemoveAll(m.data()))
	m.joins = true
	w.start(slot)
}

// remove removes the member in a slot. Its process ends by itself.
func (w *world) remove(slot int) {
	w.t.Helper()
	m := w.members[slot]
	var id uint64
	w.eventually("the member is listed", func() bool {
		listed := at(w.list(), w.net.peer(slot))
		id = listed.GetID()
		return listed != nil
	})
	gone := func(members []*pb.Member) bool { return len(members) > 0 && at(members, w.net.peer(slot)) == nil }
	w.change("a member is removed", gone, func(ctx context.Context, s stubs) error {
		_, err := s.changes.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id})
		return err
	})
	w.eventually("a removed member ends", func() bool {
		select {
		case <-m.process.ended:
			return true
		default:
			return false
		}
	})
	m.process = nil
}

// pauseLeader pauses the leader at some moment from now on, unless it is in the slot spared, whose member is about to be
// removed. resume ends that.
func (w *world) pauseLeader(spared int) (resume func()) {
	pids := make(map[int]int)
	for i, m := range w.members {
		if m.process != nil && i != spared {
			pids[i] = m.process.cmd.Process.Pid
		}
	}
	over, paused := make(chan struct{}), 0
	var running sync.WaitGroup
	running.Go(func() {
		select {
		case <-over:
			return
		case <-time.After(rand.N(2 * electionTimeout)):
		}
		for i, pid := range pids {
			ctx, cancel := context.WithTimeout(context.Background(), attemptLimit/2)
			st, err := w.members[i].maintenance.Status(ctx, &pb.StatusRequest{})
			cancel()
			if err == nil && st.Leader == st.Header.MemberId {
				_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
				paused = pid
				return
			}
		}
	})
	return func() {
		close(over)
		running.Wait()
		if paused != 0 {
			_ = syscall.Kill(paused, syscall.SIGCONT)
		}
	}
}

// mustAgree checks that all members that run list the same members, and how many these are.
func (w *world) mustAgree(want int) {
	w.t.Helper()
	var texts []string
	for i, m := range w.members {
		if m.process == nil {
			continue
		}
		w.eventually("member "+name(i)+" lists the members", func() bool {
			ctx, cancel := context.WithTimeout(w.t.Context(), attemptLimit)
			defer cancel()
			list, err := m.changes.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
			if err != nil {
				return false
			}
			var text []string
			for _, l := range list.Members {
				text = append(text, fmt.Sprintf("%x %v %v", l.ID, l.PeerURLs, l.IsLearner))
			}
			if len(list.Members) != want {
				w.t.Errorf("%s lists %d members, not %d: %v", name(i), len(list.Members), want, text)
			}
			texts = append(texts, strings.Join(text, ", "))
			return true
		})
	}
	if len(slices.Compact(texts)) != 1 {
		w.t.Errorf("the members list different members:\n%s", strings.Join(texts, "\n"))
	}
}

// A change of the members is under way when the leader is killed. It was made or not; all members agree which, and an
// acknowledged one was made.
func TestLeaderIsKilledDuringAChangeOfMembers(t *testing.T) {
	t.Parallel()
	w := newGrowingWorld(t)
	defer w.load.end(false)
	free := w.freeSlot()
	url := "http://" + w.net.peer(free)
	made := 0
	for range 4 {
		leader := w.leader()
		result := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), callLimit)
			defer cancel()
			_, err := w.members[others(leader)[0]].changes.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{url}, IsLearner: true})
			result <- err
		}()
		time.Sleep(rand.N(3 * time.Millisecond))
		w.kill(leader)
		err := <-result
		w.load.progress()
		var members []*pb.Member
		w.eventually("the members are listed", func() bool { members = w.list(); return members != nil })
		there := at(members, w.net.peer(free))
		switch {
		case err == nil && there == nil:
			t.Error("an acknowledged change was lost")
		case err != nil && !isTransient(err):
			t.Errorf("a change while the leader is killed: %v", err)
		}
		w.start(leader)
		w.whole()
		if there != nil {
			made++
			w.mustAgree(size + 1)
			w.change("the learner is removed", func(m []*pb.Member) bool { return len(m) == size }, func(ctx context.Context, s stubs) error {
				_, err := s.changes.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: there.ID})
				return err
			})
		}
		w.mustAgree(size)
		w.load.progress()
	}
	t.Logf("%d of 4 changes were made", made)
}

// Of two changes at once the second is refused, and nothing of it was made.
func TestTwoChangesOfMembersAtOnce(t *testing.T) {
	t.Parallel()
	w := newGrowingWorld(t)
	defer w.load.end(false)
	must(t, w.net.delay(50*time.Millisecond)) // so that a change takes long enough
	url := "http://" + w.net.peer(w.freeSlot())
	leader := w.leader()
	const many = 4
	errs := make([]error, many)
	var running sync.WaitGroup
	for i := range many {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), callLimit)
			defer cancel()
			_, errs[i] = w.members[leader].changes.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{url}, IsLearner: true})
		})
	}
	running.Wait()
	w.net.heal()
	made, refused := 0, 0
	for _, err := range errs {
		switch text := status.Convert(err).Message(); {
		case err == nil:
			made++
		case strings.Contains(text, "another change of the members is under way"), text == rpctypes.ErrorDesc(rpctypes.ErrGRPCPeerURLExist):
			refused++ // the second form is that of the change that waited for the first one
		default:
			t.Errorf("a change at the same time as others: %v", err)
		}
	}
	if made != 1 || refused != many-1 {
		t.Errorf("of %d changes at once %d were made and %d refused", many, made, refused)
	}
	w.mustAgree(size + 1)
	w.load.progress()
}

// A member that has just got its vote does not answer. The others go on without it, and it catches up later.
func TestPromotedLearnerThatLags(t *testing.T) {
	t.Parallel()
	w := newGrowingWorld(t)
	defer w.load.end(false)
	free := w.freeSlot()
	id := w.addLearner(free)
	w.startJoiner(free)
	w.promote(id)
	w.freeze(free)
	w.load.progress()
	leader := w.leader()
	must(t, w.moveLeader(leader, others(leader)[0]))
	w.load.progress()
	w.signal(free, syscall.SIGCONT)
	w.whole()
	w.remove(others(leader)[0]) // the leader
	w.load.progress()
	w.whole()
	w.mustAgree(size)
}
