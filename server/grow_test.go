package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/peer"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// growing is a real cluster in this process, over TCP, whose members come and go.
type growing struct {
	t      *testing.T
	mu     sync.Mutex
	up     map[string]*grown
	parent string // of the data directories
	// dirs and addresses are those of all members that ever started, by name.
	dirs, addresses map[string]string
}

// grown is a running member.
type grown struct {
	*front
	name      string
	transport *peer.Transport
	stopped   sync.Once
}

// startGrowing starts a cluster of one member, a.
func startGrowing(t *testing.T) *growing {
	t.Helper()
	g := newGrowing(t)
	wantOK(t, g.start("a", nil))
	g.ready("a")
	return g
}

func newGrowing(t *testing.T) *growing {
	g := &growing{t: t, up: make(map[string]*grown), parent: t.TempDir(), dirs: make(map[string]string), addresses: make(map[string]string)}
	t.Cleanup(func() { // before the directories are removed
		for _, m := range g.running() {
			g.stop(m.name)
		}
	})
	return g
}

func (g *growing) running() (all []*grown) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.up {
		all = append(all, m)
	}
	return all
}

func (g *growing) at(name string) *grown {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.up[name]
}

// reserve chooses the address and the data directory of a member, if it has none.
func (g *growing) reserve(name string) (address string) {
	if g.addresses[name] == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		wantOK(g.t, err)
		g.addresses[name], g.dirs[name] = l.Addr().String(), filepath.Join(g.parent, name)
		l.Close()
	}
	return g.addresses[name]
}

// start starts a member. change may change its configuration.
func (g *growing) start(name string, change func(*node.ClusterConfig, *peer.Joining)) error {
	address, s := g.reserve(name), new(socket)
	url := "http://" + address
	j := peer.Joining{Address: address, Drift: clock.DefaultDrift, MasterLease: masterlease.DefaultDuration}
	cfg := &node.ClusterConfig{
		Founders: []roster.Member{{Name: name, PeerURLs: []string{url}}}, Transport: s, Reconfigured: s.SetMembers, ReadTimeout: 10 * time.Second,
	}
	for _, m := range g.running() {
		j.Ask = append(j.Ask, g.addresses[m.name])
	}
	if len(j.Ask) > 0 {
		cfg.Join = func(ctx context.Context) (node.Invitation, error) {
			joined, err := peer.Join(ctx, j)
			return node.Invitation(joined), err
		}
	}
	if change != nil {
		change(cfg, &j)
	}
	n, err := node.Start(g.t.Context(), node.Config{Dir: g.dirs[name], Cluster: cfg})
	if err != nil {
		return err
	}
	self := n.Header()
	listener, err := net.Listen("tcp", address)
	wantOK(g.t, err)
	m := &grown{name: name}
	m.transport, err = peer.New(peer.Config{
		Self: self.MemberID, ClusterID: self.ClusterID, Incarnation: n.Incarnation(), InUse: n.VersionInUse, Listed: n.ConnectedByList, Members: map[uint64]string{self.MemberID: address},
		Listener: listener, Drift: clock.DefaultDrift, MasterLease: masterlease.DefaultDuration,
		Receive: n.Receive, Connected: n.Connected, ReceiveState: n.ReceiveState, Unreachable: n.Unreachable,
	})
	wantOK(g.t, err)
	s.Connect(m.transport)
	front := anyPort()
	front.Name, front.Cluster = name, &Cluster{Peers: m.transport, ReadTimeout: 10 * time.Second}
	server, err := New(front, n)
	wantOK(g.t, err)
	wantOK(g.t, m.transport.Start())
	m.front = frontOf(g.t, server, n)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.up[name] = m
	return nil
}

// ready waits until requests work through a member.
func (g *growing) ready(name string) {
	g.t.Helper()
	eventually(g.t, name+" is ready", func() bool { return g.at(name).node.CheckReady() == nil })
}

// stop stops a member.
func (g *growing) stop(name string) {
	g.t.Helper()
	m := g.at(name)
	g.mu.Lock()
	delete(g.up, name)
	g.mu.Unlock()
	m.stopped.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		removed := (*replica.RemovedError)(nil)
		if err := m.server.Stop(ctx); err != nil {
			g.t.Errorf("stopping the server of %s: %v", name, err)
		}
		if err := m.node.Stop(ctx); err != nil && !errors.As(err, &removed) {
			g.t.Errorf("stopping %s: %v", name, err)
		}
		if err := m.transport.Close(ctx); err != nil {
			g.t.Errorf("closing the transport of %s: %v", name, err)
		}
	})
}

// leader returns the member that leads.
func (g *growing) leader() (leader *grown) {
	g.t.Helper()
	eventually(g.t, "a member leads", func() bool {
		for _, m := range g.running() {
			if m.node.Err() == nil && m.server.forwarder.Leads() {
				leader = m
				return true
			}
		}
		return false
	})
	return leader
}

// change changes the members, and tries again while the cluster is not ready for the change.
func (g *growing) change(kind roster.Kind, m roster.Member) (list []roster.Member) {
	g.t.Helper()
	if kind == roster.Add {
		m.ID = rand.Uint64N(1<<63) + 2
	}
	var err error
	eventually(g.t, fmt.Sprintf("%v of %x", kind, m.ID), func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		list, _, err = g.leader().node.ChangeMembers(ctx, roster.Change{Kind: kind, Member: m})
		switch {
		case errors.Is(err, replica.ErrUnknownOutcome): // it may have been done
			return g.isDone(kind, m)
		case kind == roster.Remove && errors.Is(err, roster.ErrRemoved), kind == roster.Add && errors.Is(err, roster.ErrPeerURLExists):
			return true
		}
		if err != nil {
			time.Sleep(20 * time.Millisecond)
		}
		return err == nil
	})
	return list
}

func (g *growing) isDone(kind roster.Kind, m roster.Member) bool {
	list, _, err := g.leader().node.Members(context.Background())
	wantOK(g.t, err)
	there := slices.ContainsFunc(list, func(l roster.Member) bool { return l.ID == m.ID || slices.Equal(l.PeerURLs, m.PeerURLs) })
	return (kind == roster.Add) == there && kind != roster.Promote
}

// id returns the id of a member in the leader's list.
func (g *growing) id(name string) uint64 {
	g.t.Helper()
	list, _, err := g.leader().node.Members(context.Background())
	wantOK(g.t, err)
	for _, m := range list {
		if slices.Contains(m.PeerURLs, "http://"+g.addresses[name]) {
			return m.ID
		}
	}
	g.t.Fatalf("%s is not listed: %+v", name, list)
	return 0
}

// add adds a member as a learner, and starts it.
func (g *growing) add(name string) {
	g.t.Helper()
	g.change(roster.Add, roster.Member{Learner: true, PeerURLs: []string{"http://" + g.reserve(name)}})
	wantOK(g.t, g.start(name, nil))
	g.ready(name)
}

// grow adds a voter.
func (g *growing) grow(name string) {
	g.t.Helper()
	g.add(name)
	g.change(roster.Promote, roster.Member{ID: g.id(name)})
}

// shrink removes a member, which ends by itself.
func (g *growing) shrink(name string) {
	g.t.Helper()
	m := g.at(name)
	g.change(roster.Remove, roster.Member{ID: m.node.Header().MemberID})
	select {
	case <-m.node.Done():
	case <-time.After(waitLimit):
		g.t.Fatalf("%s was removed, and goes on", name)
	}
	if removed := (*replica.RemovedError)(nil); !errors.As(m.node.Err(), &removed) {
		g.t.Errorf("%s ended because of %v", name, m.node.Err())
	}
	g.stop(name)
}

// agree requires that all running members have one state, and list these members as voters.
func (g *growing) agree(names ...string) {
	g.t.Helper()
	revision := g.leader().put("agreed", strings.Join(names, " ")).Header.Revision
	var want []uint64
	for _, name := range names {
		want = append(want, g.id(name))
	}
	slices.Sort(want)
	for _, m := range g.running() {
		eventually(g.t, m.name+" has the state", func() bool {
			got, err := m.kv.Range(m.ctx(), &pb.RangeRequest{Key: []byte("agreed")})
			return err == nil && len(got.Kvs) == 1 && got.Kvs[0].ModRevision == revision
		})
		eventually(g.t, m.name+" has the list", func() bool {
			list, _, err := m.node.Members(context.Background())
			wantOK(g.t, err)
			var voters []uint64
			for _, l := range list {
				if !l.Learner {
					voters = append(voters, l.ID)
				}
			}
			return slices.Equal(voters, want)
		})
	}
}

func TestServerGrowsToFiveMembersAndShrinks(t *testing.T) {
	g := startGrowing(t)
	g.agree("a")
	for i, name := range []string{"b", "c", "d", "e"} {
		g.grow(name)
		g.agree([]string{"a", "b", "c", "d", "e"}[:i+2]...)
	}
	g.shrink("d")
	g.shrink(g.leader().name)
	var rest []string
	for _, m := range g.running() {
		rest = append(rest, m.name)
	}
	slices.Sort(rest)
	wantEqual(t, "members", len(rest), 3)
	g.agree(rest...)
}

// The leader of two is removed. The other one leads alone, and the removed directory is refused.
func TestLeaderOfTwoIsRemoved(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	leader := g.leader().name
	g.shrink(leader)
	rest := g.leader().name
	g.agree(rest)
	removed := (*replica.RemovedError)(nil)
	if err := g.start(leader, nil); !errors.As(err, &removed) {
		t.Errorf("the directory of a removed member starts: %v", err)
	}
}

// A member that is replaced loses no acknowledged write.
func TestMemberIsReplacedUnderLoad(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	g.grow("c")
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan int, 1)
	go func() {
		acknowledged := 0
		for i := 0; ctx.Err() == nil; i++ {
			for _, m := range g.running() {
				if _, err := m.kv.Put(ctx, &pb.PutRequest{Key: []byte("last"), Value: []byte(fmt.Sprint(i))}); err == nil {
					acknowledged = i
					break
				}
			}
		}
		written <- acknowledged
	}()
	gone := g.at("b")
	g.stop("b")
	g.change(roster.Remove, roster.Member{ID: gone.node.Header().MemberID})
	g.grow("d")
	cancel()
	acknowledged := <-written
	got, err := g.leader().kv.Range(limited(t, t.Context()), &pb.RangeRequest{Key: []byte("last")})
	wantOK(t, err)
	last := 0
	if _, err := fmt.Sscan(string(got.Kvs[0].Value), &last); err != nil || last < acknowledged || acknowledged == 0 {
		t.Errorf("the last acknowledged write is %d, and %s is stored", acknowledged, got.Kvs[0].Value)
	}
	g.agree("a", "c", "d")
}

// The leader vanishes while it adds a member. The next leader has the member or not, and can add it.
func TestMemberIsAddedWhileTheLeaderVanishes(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	g.grow("c")
	leader := g.leader()
	url := "http://" + g.reserve("d")
	done := make(chan error, 1)
	go func() {
		_, _, err := leader.node.ChangeMembers(t.Context(), roster.Change{Kind: roster.Add, Member: roster.Member{ID: rand.Uint64N(1<<63) + 2, Learner: true, PeerURLs: []string{url}}})
		done <- err
	}()
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	_ = leader.transport.Close(cut) // the others hear nothing more of it, as if it were killed
	g.stop(leader.name)
	<-done
	g.add("d")
	wantOK(t, g.start(leader.name, nil))
	g.ready(leader.name)
	g.change(roster.Promote, roster.Member{ID: g.id("d")})
	g.agree("a", "b", "c", "d")
}

// After its start a member has the addresses of the list, whatever its configuration says.
func TestListWinsOverConfigurationAtRestart(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	g.grow("c")
	for _, name := range []string{"a", "b", "c"} {
		g.stop(name)
	}
	for _, name := range []string{"a", "b", "c"} {
		wantOK(t, g.start(name, func(c *node.ClusterConfig, _ *peer.Joining) {
			c.Join, c.Self, c.ClusterID, c.Members = nil, 1, 77, []uint64{1, 2, 3}
			c.Founders = []roster.Member{{ID: 1, PeerURLs: []string{"http://nowhere:1"}}}
		}))
	}
	g.ready("b")
	g.agree("a", "b", "c")
}

func TestServerThatIsNotInvitedDoesNotJoin(t *testing.T) {
	g := startGrowing(t)
	for want, change := range map[string]func(*peer.Joining){
		"add it with leasekeeper member add": func(j *peer.Joining) {},
		"give it the same":                   func(j *peer.Joining) { j.Address = g.addresses["b"]; j.MasterLease /= 2 },
	} {
		g.reserve("b")
		if strings.HasPrefix(want, "give") {
			g.change(roster.Add, roster.Member{Learner: true, PeerURLs: []string{"http://" + g.reserve("b")}})
		}
		err := g.start("b", func(_ *node.ClusterConfig, j *peer.Joining) { change(j); j.Patience = time.Nanosecond })
		if !errors.Is(err, peer.ErrNotInvited) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
		g.change(roster.Describe, roster.Member{ID: g.id("a"), Name: "a"})
		if strings.HasPrefix(want, "give") {
			g.change(roster.Remove, roster.Member{ID: g.id("b")})
		}
	}
}

// A member whose data directory is lost does not come back as the same member.
func TestWipedMemberIsRefused(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	g.grow("c")
	g.stop("c")
	g.dirs["c"] = filepath.Join(g.parent, "wiped")
	eventually(t, "the members know that it has started", func() bool {
		list, _, err := g.leader().node.Members(t.Context())
		wantOK(t, err)
		return !slices.ContainsFunc(list, func(m roster.Member) bool { return m.Incarnation == 0 })
	})
	if err := g.start("c", nil); !errors.Is(err, peer.ErrNotInvited) || !strings.Contains(err.Error(), "with another data directory") {
		t.Errorf("a wiped member starts: %v", err)
	}
}

// Members that join say their names and client URLs, so that every member lists them.
func TestJoinedMembersAreListedWithNamesAndURLs(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	for _, m := range g.running() {
		eventually(t, "the list is complete at "+m.name, func() bool {
			list, _, err := m.node.Members(t.Context())
			wantOK(t, err)
			for _, l := range list {
				other := g.at(l.Name)
				if other == nil || !slices.Equal(l.ClientURLs, other.server.clientURLs()) || l.ID != other.node.Header().MemberID {
					return false
				}
			}
			return len(list) == 2
		})
	}
}

// A directory that founded a cluster of its own does not start as one of several members: these may be another cluster.
func TestDirectoryOfALoneServerIsRefusedAmongOthers(t *testing.T) {
	g := startGrowing(t)
	g.stop("a")
	err := g.start("a", func(c *node.ClusterConfig, _ *peer.Joining) { // as with --initial-cluster-state existing
		c.Self, c.ClusterID, c.Members = 1, 77, []uint64{1, 2}
		c.Join = func(context.Context) (node.Invitation, error) {
			return node.Invitation{}, errors.New("it has data, and joins")
		}
	})
	if err == nil || !strings.Contains(err.Error(), "start it with the names it was founded with") {
		t.Errorf("it started: %v", err)
	}
}

// The data directory of a server that was alone grows, and a server without an address for members is refused afterwards.
func TestSingleServerBecomesAMember(t *testing.T) {
	g := newGrowing(t)
	dir := filepath.Join(g.parent, "alone")
	alone, err := node.Start(t.Context(), node.Config{Dir: dir})
	wantOK(t, err)
	if _, _, err := alone.ChangeMembers(t.Context(), roster.Change{Kind: roster.Add, Member: roster.Member{ID: 7}}); !errors.Is(err, node.ErrNoPeerAddress) {
		t.Errorf("a server without an address adds a member: %v", err)
	}
	wantOK(t, alone.Stop(t.Context()))
	g.reserve("a")
	g.dirs["a"] = dir
	wantOK(t, g.start("a", nil))
	g.ready("a")
	wantEqual(t, "id", g.at("a").node.Header().MemberID, alone.Header().MemberID)
	g.grow("b")
	g.agree("a", "b")
	g.stop("b")
	g.stop("a")
	if n, err := node.Start(t.Context(), node.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "--peer-advertise") {
		t.Errorf("a member of two starts without an address: %v, %v", n, err)
	}
}

// A member that was away when it was removed hears of that when it comes back.
func TestMemberRemovedWhileAwayHearsOfIt(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	g.grow("c")
	id := g.id("c")
	g.stop("c")
	g.change(roster.Remove, roster.Member{ID: id})
	wantOK(t, g.start("c", nil))
	m := g.at("c")
	select {
	case <-m.node.Done():
	case <-time.After(waitLimit):
		t.Fatal("it was removed, and goes on")
	}
	if removed := (*replica.RemovedError)(nil); !errors.As(m.node.Err(), &removed) {
		t.Errorf("it ended because of %v", m.node.Err())
	}
	g.stop("c")
	g.agree("a", "b")
}

// The server of a removed member ends streams so that clients go elsewhere, and calls that it has forwarded are answered.
func TestServerOfARemovedMemberFinishesWhatIsUnderWay(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	g.grow("c")
	leader := g.leader()
	m := g.at("b")
	if m == leader {
		m = g.at("c")
	}
	held, err := v3lockpb.NewLockClient(leader.conn).Lock(leader.ctx(), &v3lockpb.LockRequest{Name: []byte("m")})
	wantOK(t, err)
	waiting := make(chan error, 1)
	go func() {
		_, err := v3lockpb.NewLockClient(m.conn).Lock(m.ctx(), &v3lockpb.LockRequest{Name: []byte("m")})
		waiting <- err
	}()
	eventually(t, "it waits for the lock", func() bool {
		keys, err := leader.kv.Range(leader.ctx(), &pb.RangeRequest{Key: []byte("m/"), RangeEnd: []byte("m0"), CountOnly: true})
		wantOK(t, err)
		return keys.Count == 2
	})
	watched, err := m.watch.Watch(m.ctx())
	wantOK(t, err)
	wantOK(t, watched.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}}))
	_, err = watched.Recv()
	wantOK(t, err)

	g.change(roster.Remove, roster.Member{ID: m.node.Header().MemberID})
	for what, ended := range map[string]<-chan struct{}{"Removed": m.node.Removed(), "Done": m.server.Done()} {
		select {
		case <-ended:
		case <-time.After(waitLimit):
			t.Fatalf("%s is not closed", what)
		}
	}
	_, err = watched.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCStopped)
	stopped := make(chan error, 1)
	go func() { stopped <- m.server.Stop(limited(t, context.Background())) }()
	<-m.node.Done()
	eventually(t, "new calls are refused", func() bool {
		_, err := m.kv.Range(m.ctx(), &pb.RangeRequest{Key: []byte("k"), Serializable: true})
		return status.Code(err) == codes.Unavailable
	})
	_, err = v3lockpb.NewLockClient(leader.conn).Unlock(leader.ctx(), &v3lockpb.UnlockRequest{Key: held.Key})
	wantOK(t, err)
	wantOK(t, <-waiting)
	wantOK(t, <-stopped)
}

// A member moves to another address: the list is changed first, then the member.
func TestMemberMovesToTheAddressInTheList(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	g.grow("c")
	id := g.id("c")
	g.stop("c")
	dir := g.dirs["c"]
	g.addresses["c"] = ""
	moved := "http://" + g.reserve("c")
	g.dirs["c"] = dir
	g.change(roster.Update, roster.Member{ID: id, PeerURLs: []string{moved}})
	wantOK(t, g.start("c", nil))
	g.ready("c")
	g.agree("a", "b", "c")
	wantEqual(t, "id", g.id("c"), id)
	eventually(t, "the others reach it there", func() bool {
		for _, s := range g.at("a").transport.Status() {
			if s.Member == id {
				return s.Connected && "http://"+s.Address == moved
			}
		}
		return false
	})
}

// A member that joined and stopped before it heard a leader finds the others by what its directory has.
func TestJoinedMemberStartsAgainBeforeItHeardALeader(t *testing.T) {
	g := startGrowing(t)
	g.grow("b")
	g.grow("c")
	g.change(roster.Add, roster.Member{Learner: true, PeerURLs: []string{"http://" + g.reserve("d")}})
	wantOK(t, g.start("d", nil))
	g.stop("d") // it has heard of the others, or not yet
	wantOK(t, g.start("d", func(c *node.ClusterConfig, _ *peer.Joining) { c.Join = nil }))
	g.ready("d")
	g.change(roster.Promote, roster.Member{ID: g.id("d")})
	g.agree("a", "b", "c", "d")
}

// A directory that founded a cluster of its own does not serve as if it had joined.
func TestDirectoryOfAnotherClusterDoesNotJoin(t *testing.T) {
	g := startGrowing(t)
	g.reserve("b")
	other, err := node.Start(t.Context(), node.Config{Dir: g.dirs["b"]})
	wantOK(t, err)
	wantOK(t, other.Stop(t.Context()))
	g.change(roster.Add, roster.Member{Learner: true, PeerURLs: []string{"http://" + g.addresses["b"]}})
	if err := g.start("b", nil); err == nil || !strings.Contains(err.Error(), "choose an empty directory to join") {
		t.Errorf("it starts: %v", err)
	}
}
