package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// switchboard carries messages between the nodes of one process.
type switchboard struct {
	mu    sync.Mutex
	nodes map[uint64]*Node
	cut   uint64 // the unreachable node; 0: none
}

// cutOff makes one node unreachable; 0 makes all reachable.
func (s *switchboard) cutOff(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = id
}

// between returns two nodes, or nil if they cannot reach each other.
func (s *switchboard) between(a, b uint64) (from, to *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != 0 && (s.cut == a || s.cut == b) {
		return nil, nil
	}
	return s.nodes[a], s.nodes[b]
}

type switchboardLink struct {
	*switchboard
	from uint64
}

func (s *switchboard) at(id uint64) *Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[id]
}

func (s *switchboard) set(id uint64, n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[id] = n
}

func (l switchboardLink) Send(to uint64, _ bool, message []byte) {
	from, other := l.between(l.from, to)
	if from != nil && other != nil {
		other.Receive(l.from, from.Incarnation(), message)
	}
}

func (l switchboardLink) Ship(ctx context.Context, to uint64, message []byte, state io.Reader) error {
	from, other := l.between(l.from, to)
	if from == nil || other == nil {
		return errors.New("not connected")
	}
	return other.ReceiveState(ctx, l.from, from.Incarnation(), message, state)
}

// quorum is a cluster of nodes on the real disk and clocks.
type quorum struct {
	t    *testing.T
	s    *switchboard
	dirs map[uint64]string
	ids  []uint64

	logKeep uint64 // replica.Config.LogKeep
	audit   bool   // Config.Audit
	space   replica.SpaceLimits
	free    func(id uint64) uint64 // free bytes of a node's disk; nil: the real number
}

func newQuorum(t *testing.T) *quorum { return newQuorumOf(t, 0) }

func newQuorumOf(t *testing.T, logKeep uint64) *quorum {
	return (&quorum{logKeep: logKeep}).begin(t)
}

func (q *quorum) begin(t *testing.T) *quorum {
	q.prepare(t)
	for _, id := range q.ids {
		q.start(id)
	}
	return q
}

// prepare chooses the nodes' IDs and data directories and starts none. Nodes that a test starts are stopped at its
// end.
func (q *quorum) prepare(t *testing.T) *quorum {
	q.t, q.s, q.dirs, q.ids = t, &switchboard{nodes: make(map[uint64]*Node)}, make(map[uint64]string), []uint64{11, 12, 13}
	for _, id := range q.ids {
		q.dirs[id] = t.TempDir()
	}
	t.Cleanup(func() {
		for _, id := range q.ids {
			if q.s.at(id) != nil {
				q.stop(id)
			}
		}
	})
	return q
}

func (q *quorum) start(id uint64) *Node {
	q.t.Helper()
	cfg := Config{Dir: q.dirs[id], logKeep: q.logKeep, Audit: q.audit, Space: q.space, Cluster: &ClusterConfig{
		Self: id, Members: q.ids, ClusterID: 0xc1, Transport: switchboardLink{q.s, id},
		ReadTimeout: 5 * time.Second,
	}}
	if q.free != nil {
		cfg.FreeBytes = func(string) (uint64, error) { return q.free(id), nil }
	}
	n, err := Start(context.Background(), cfg)
	if err != nil {
		q.t.Fatal(err)
	}
	q.s.set(id, n)
	return n
}

func (q *quorum) stop(id uint64) {
	q.t.Helper()
	n := q.s.at(id)
	if err := n.Stop(context.Background()); err != nil {
		q.t.Errorf("stop: %v", err)
	}
	q.s.set(id, nil)
}

// leader returns a serving leader and a follower.
func (q *quorum) leader() (leader, follower *Node) {
	q.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		for _, id := range q.ids {
			n := q.s.at(id)
			if n == nil {
				continue
			}
			if known, err := n.AwaitLeader(context.Background()); err == nil && known != id && q.s.at(known) != nil {
				if at, _ := q.s.at(known).Leader(); at == known {
					return q.s.at(known), n
				}
			}
		}
	}
	q.t.Fatal("no member ever leads")
	return nil, nil
}

// A leader with a full disk hands over to a member with space, and the cluster accepts puts again.
func TestLeaderWithFullDiskHandsOver(t *testing.T) {
	const least = 1 << 20
	full := new(atomic.Uint64) // the member with the full disk
	q := (&quorum{space: replica.SpaceLimits{MinFree: least}, free: func(id uint64) uint64 {
		if id == full.Load() {
			return least / 8 // so little that releasing the reserve does not make up for it
		}
		return 10 * least
	}}).begin(t)
	leader, _ := q.leader()
	id, _ := leader.Leader()
	full.Store(id)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		next, _ := q.leader()
		if to, _ := next.Leader(); to != id {
			if _, _, err := next.Put(t.Context(), keyspace.PutRequest{Key: []byte("k")}); err != nil {
				t.Errorf("a put at the member with room: %v", err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the full member leads still")
		}
	}
}

func TestFollowerServesClusterRequests(t *testing.T) {
	q := newQuorum(t)
	ctx := context.Background()
	leader, follower := q.leader()
	if _, _, err := leader.Grant(ctx, 7, time.Hour); err != nil {
		t.Fatal(err)
	}
	mustPut(t, leader, "k", "v", 7)
	if kvs := get(t, follower, "k"); len(kvs) != 1 || string(kvs[0].Value) != "v" {
		t.Errorf("the follower reads %v", kvs)
	}
	if _, _, err := follower.Put(ctx, keyspace.PutRequest{Key: []byte("k"), Value: []byte("w")}); !errors.Is(err, replica.ErrNotLeader) {
		t.Errorf("a put at a follower: %v", err)
	}
	renewed := make(chan []replica.RenewedLease, 2)
	if err := follower.Renew(ctx, []lessor.ID{7, 8}, func(_ replica.Header, leases []replica.RenewedLease) { renewed <- leases }); err != nil {
		t.Fatal(err)
	}
	if leases := <-renewed; len(leases) != 2 || leases[0].TTL != time.Hour || leases[1].Err == nil {
		t.Errorf("renewed: %+v", leases)
	}
	status, err := leader.Cluster(ctx)
	if err != nil || status.Role != replica.RoleLeader || status.Lease <= 0 || len(status.Members) != 3 {
		t.Errorf("cluster: %+v, %v", status, err)
	}
}

// A leader that stops hands over, so that the others elect a successor at once.
func TestStoppingLeaderHandsOver(t *testing.T) {
	q := newQuorum(t)
	leader, follower := q.leader()
	mustPut(t, leader, "k", "v", 0)
	_, term := leader.Leader()
	q.stop(leader.identity.MemberID)
	id, err := follower.AwaitLeader(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	next := q.s.at(id)
	if _, now := next.Leader(); id == leader.identity.MemberID || now != term+1 {
		t.Errorf("member %d leads in term %d, after %d in term %d", id, now, leader.identity.MemberID, term)
	}
	mustPut(t, next, "k", "w", 0)
	q.start(leader.identity.MemberID)
	if kvs := get(t, q.s.at(leader.identity.MemberID), "k"); len(kvs) != 1 || string(kvs[0].Value) != "w" {
		t.Errorf("back again it reads %v", kvs)
	}
}

func TestHandOverMovesLeadership(t *testing.T) {
	q := newQuorum(t)
	leader, follower := q.leader()
	to := follower.identity.MemberID
	if err := leader.HandOver(context.Background(), to); err != nil {
		t.Fatal(err)
	}
	if err := leader.HandOver(context.Background(), to); !errors.Is(err, replica.ErrNotLeader) {
		t.Errorf("again: %v", err)
	}
}

// A data directory belongs to one member of one cluster.
func TestDataDirectoryOfOtherClusterIsRefused(t *testing.T) {
	q := newQuorum(t)
	leader, _ := q.leader()
	id := leader.identity.MemberID
	q.stop(id)
	for what, g := range map[string]*ClusterConfig{
		"alone":           nil,
		"another member":  {Self: 12, Members: q.ids, ClusterID: 0xc1},
		"another cluster": {Self: id, Members: q.ids, ClusterID: 0xc2},
		"other members":   {Self: id, Members: []uint64{id, 88, 99}, ClusterID: 0xc1},
	} {
		if what == "another member" && id == 12 {
			g.Self = 11
		}
		_, err := Start(context.Background(), Config{Dir: q.dirs[id], Cluster: g})
		if err == nil || !strings.Contains(err.Error(), "another data directory") {
			t.Errorf("%s: %v", what, err)
		}
	}
	q.start(id)
}

// An orchestrator tells every server of a cluster to join, also those that founded it. Founders start as before.
func TestFounderThatIsToldToJoinStarts(t *testing.T) {
	q := new(quorum).prepare(t)
	q.start(11)
	q.stop(11)
	n, err := Start(context.Background(), Config{Dir: q.dirs[11], Cluster: &ClusterConfig{
		Self: 11, Members: q.ids, ClusterID: 0xc1, Transport: switchboardLink{q.s, 11},
		Join: func(context.Context) (Invitation, error) {
			return Invitation{}, errors.New("it has data, and joins again")
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	q.s.set(11, n)
	if h := n.Header(); h.MemberID != 11 || h.ClusterID != 0xc1 {
		t.Errorf("it is the member %x of %x", h.MemberID, h.ClusterID)
	}
}

// overheard is a transport that records which member gave up its leadership.
type overheard struct {
	switchboardLink
	gaveUp chan uint64
}

func (o overheard) Send(to uint64, urgent bool, frame []byte) {
	if m, err := message.Parse(o.from, to, frame); err == nil && m.Raft == nil && m.Lease.Release != nil {
		select {
		case o.gaveUp <- o.from:
		default:
		}
	}
	o.switchboardLink.Send(to, urgent, frame)
}

// A leader whose disk fails notifies the others at once, so that they elect a successor. It does so whether its own
// write fails or the database reports the failure.
func TestLeaderWithFailedDiskAnnouncesIt(t *testing.T) {
	for name, fail := range map[string]func(leader *Node, broken *atomic.Bool) error{
		"writing": func(leader *Node, broken *atomic.Bool) error {
			broken.Store(true)
			if _, _, err := leader.Put(context.Background(), keyspace.PutRequest{Key: []byte("k"), Value: []byte("v")}); !errors.Is(err, replica.ErrUnknownOutcome) {
				return fmt.Errorf("put: %v", err)
			}
			return awaitEnd(leader)
		},
		"in the background": func(leader *Node, _ *atomic.Bool) error {
			leader.halt(errors.New("the disk failed while data was moved in the background"))
			return awaitEnd(leader)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inOwnProcess(t, func() error { return announcesFailure(fail) })
		})
	}
}

func announcesFailure(fail func(leader *Node, broken *atomic.Bool) error) error {
	ctx, ids := context.Background(), []uint64{11, 12, 13}
	s, gaveUp := &switchboard{nodes: make(map[uint64]*Node)}, make(chan uint64, 64)
	broken := make(map[uint64]*atomic.Bool)
	for _, id := range ids {
		broken[id] = new(atomic.Bool)
		n, err := Start(ctx, Config{
			Dir: "data", FS: breakable(broken[id], func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") }),
			Cluster: &ClusterConfig{Self: id, Members: ids, ClusterID: 0xc1, Transport: overheard{switchboardLink{s, id}, gaveUp}},
		})
		if err != nil {
			return err
		}
		s.set(id, n)
	}
	<-s.at(ids[0]).Ready()
	id, err := s.at(ids[0]).AwaitLeader(ctx)
	if err != nil {
		return err
	}
	if err := fail(s.at(id), broken[id]); err != nil {
		return err
	}
	limit := time.After(30 * time.Second)
	for {
		select {
		case from := <-gaveUp: // on a busy machine another leader may have done so before
			if from == id {
				return nil
			}
		case <-limit:
			return errors.New("the other members were never notified")
		}
	}
}
