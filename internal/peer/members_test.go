package peer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// listed returns the list of members with these ids.
func (g *cluster) listed(ids ...uint64) (list []roster.Member) {
	for _, id := range ids {
		list = append(list, roster.Member{ID: id, PeerURLs: []string{"http://" + g.members[id]}})
	}
	return list
}

// only makes a member know these members.
func only(g *cluster, ids ...uint64) func(*Config, *member) {
	return func(c *Config, _ *member) {
		c.Members = make(map[uint64]string)
		for _, id := range ids {
			c.Members[id] = g.members[id]
		}
	}
}

func (m *member) members() (ids []uint64) {
	for _, s := range m.Status() {
		ids = append(ids, s.Member)
	}
	return ids
}

// has reports whether there is a link to a member, also if it is in no list.
func (m *member) has(id uint64) bool { return m.link(id) != nil }

func (m *member) eventually(what string, is func() bool) {
	m.t.Helper()
	for limit := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			m.t.Fatalf("%s: not so after all this time\n%s", what, m.log.text.String())
		}
	}
}

func TestAddedMemberIsConnected(t *testing.T) {
	g := newCluster(t, 1, 2, 3)
	a, b := g.start(1, only(g, 1, 2)), g.start(2, only(g, 1, 2))
	a.awaitConnected(2)
	a.SetMembers(g.listed(1, 2, 3))
	c := g.start(3, nil)
	a.awaitConnected(3)
	a.Send(3, true, []byte("welcome"))
	c.wantNext(1, "welcome")
	a.Send(2, true, []byte("you too"))
	b.wantNext(1, "you too")
}

// A member that this one does not know yet is heard and answered.
func TestUnknownMemberIsHeardAndAnswered(t *testing.T) {
	for _, certificates := range []bool{false, true} {
		t.Run(fmt.Sprint("certificates ", certificates), func(t *testing.T) {
			ca := authority.New(t, "authority")
			g := newCluster(t, 1, 2)
			with := func(change func(*Config, *member)) func(*Config, *member) {
				return func(c *Config, m *member) {
					change(c, m)
					if certificates {
						c.Files = filesOf(t, ca, here, ca)
					}
				}
			}
			a, b := g.start(1, with(only(g, 1))), g.start(2, with(only(g, 1, 2)))
			b.awaitConnected(1)
			b.Send(1, false, []byte("append"))
			a.wantNext(2, "append")
			a.eventually("a link to the unknown member is connected", func() bool { return a.link(2).status().Connected })
			a.Send(2, true, []byte("accepted"))
			b.wantNext(1, "accepted")
			if len(a.members()) != 0 {
				t.Errorf("the unknown member is listed: %x", a.members())
			}
			former := a.link(2)
			a.SetMembers(g.listed(1, 2))
			if a.link(2) != former || !slices.Equal(a.members(), []uint64{2}) {
				t.Errorf("a member that was unknown is connected again: %x", a.members())
			}
		})
	}
}

// With TLS, an unknown caller is only heard if its certificate is for the host at which it says that it is.
func TestUnknownCallerWithAnotherHostIsRefused(t *testing.T) {
	ca := authority.New(t, "authority")
	g := newCluster(t, 1, 2)
	a := g.start(1, func(c *Config, m *member) { only(g, 1)(c, m); c.Files = filesOf(t, ca, here, ca) })
	b := g.start(2, func(c *Config, m *member) { c.Files = filesOf(t, ca, "elsewhere.example", ca) })
	b.awaitRefusal(1, "has not proven to be a member")
	if a.has(2) {
		t.Error("the caller has a link")
	}
}

func TestUnknownCallersAreBounded(t *testing.T) {
	g := newCluster(t, 1)
	a := g.start(1, func(c *Config, m *member) { c.guestIdle = time.Hour })
	closed := listen(t)
	closed.Close()
	for i := range uint64(maxGuests) {
		if _, err := a.welcome(100+i, closed.Addr().String(), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.welcome(99, closed.Addr().String(), false); err == nil {
		t.Error("one more was accepted")
	}
	if _, err := a.welcome(100, closed.Addr().String(), false); err != nil {
		t.Errorf("one that has a link is refused: %v", err)
	}
	for _, address := range []string{"", "x", strings.Repeat("x", maxAddress) + ":1"} {
		if _, err := a.welcome(100+maxGuests, address, false); err == nil {
			t.Errorf("%q is accepted as an address", address)
		}
	}
}

// The link to a removed member stays while that member calls, so that it hears of its removal. Then it is closed.
func TestRemovedMemberIsDisconnected(t *testing.T) {
	g := newCluster(t, 1, 2)
	a := g.start(1, func(c *Config, _ *member) { c.guestIdle = 20 * time.Millisecond })
	b := g.start(2, nil)
	a.awaitConnected(2)
	b.awaitConnected(1)
	a.eventually("the other is heard", func() bool { return a.peer(2).Listening })
	a.SetMembers(g.listed(1))
	if len(a.members()) != 0 {
		t.Errorf("a removed member is listed: %x", a.members())
	}
	a.Send(2, true, []byte("you were removed"))
	b.wantNext(1, "you were removed")
	b.stop()
	a.eventually("there is no link", func() bool { return !a.has(2) })
	if a.Conn(2) != nil {
		t.Error("there is a connection to a member that is gone")
	}
	a.Send(2, true, []byte("dropped"))
}

// A member that hears of past members, one list after the other, keeps no links to them.
func TestPastMembersHaveNoLinks(t *testing.T) {
	g := newCluster(t, 1, 2, 3)
	a := g.start(1, func(c *Config, _ *member) { c.guestIdle = time.Hour })
	if !a.has(2) || !a.has(3) {
		t.Fatal("there are no links to members")
	}
	a.SetMembers(g.listed(1, 3))
	if a.has(2) || !a.has(3) {
		t.Errorf("links to a past member: %v, to a present one: %v", a.has(2), a.has(3))
	}
}

// The link to a removed member ends when another member has its address: it would only disturb that one.
func TestLinkToARemovedMemberEndsWhenItsAddressIsTaken(t *testing.T) {
	g := newCluster(t, 1, 2)
	a := g.start(1, func(c *Config, _ *member) { c.guestIdle = time.Hour })
	b := g.start(2, nil)
	a.awaitConnected(2)
	b.awaitConnected(1)
	taken := append(g.listed(1), roster.Member{ID: 9, PeerURLs: g.listed(2)[0].PeerURLs})
	a.SetMembers(taken)
	if !a.has(2) {
		t.Error("a removed member that is connected has no link")
	}
	b.stop()
	a.eventually("the link has ended", func() bool {
		a.SetMembers(taken)
		return !a.has(2)
	})
}

func TestRemovedMemberMayNotForwardCalls(t *testing.T) {
	g := newCluster(t, 1, 2)
	s := new(asked)
	b := g.startServing(2, s)
	defer b.Close(within(t))
	a := g.start(1, nil)
	call := func() (trailer metadata.MD, err error) {
		_, err = healthpb.NewHealthClient(a.Conn(2)).Check(within(t), &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
		return trailer, err
	}
	if trailer, err := call(); err != nil || Refused(trailer) {
		t.Fatal(trailer, err)
	}
	<-s.from
	b.SetMembers(g.listed(2))
	trailer, err := call()
	if err == nil || !strings.Contains(err.Error(), "if it was removed, stop it") {
		t.Errorf("a removed member's call got %v", err)
	}
	if !Refused(trailer) || len(s.from) > 0 {
		t.Errorf("the trailer %v of a refused call; the service received %d", trailer, len(s.from))
	}
}

// An error of a service is no refusal: the call may have changed something.
func TestErrorOfAServiceIsNoRefusal(t *testing.T) {
	g := newCluster(t, 1, 2)
	b := g.startServing(2, new(asked))
	defer b.Close(within(t))
	a := g.start(1, nil)
	var trailer metadata.MD
	stream, err := healthpb.NewHealthClient(a.Conn(2)).Watch(within(t), &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented || Refused(trailer) {
		t.Errorf("%v with the trailer %v", err, trailer)
	}
}

func TestMemberMovesToAnotherAddress(t *testing.T) {
	g := newCluster(t, 1, 2)
	a, b := g.start(1, nil), g.start(2, nil)
	a.awaitConnected(2)
	b.awaitConnected(1)
	b.stop()
	g.listeners[2] = listen(t)
	g.members = map[uint64]string{1: g.members[1], 2: g.listeners[2].Addr().String()}
	a.SetMembers(g.listed(1, 2))
	b = g.start(2, nil)
	a.awaitConnected(2)
	a.Send(2, true, []byte("found"))
	b.wantNext(1, "found")
	if s := a.peer(2); s.Address != g.members[2] {
		t.Errorf("the address is %s", s.Address)
	}
}

// A member whose new address is not in the list yet calls from there, and is answered there.
func TestMemberAtAnUnknownAddressIsAnswered(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	a := g.start(1, nil)
	a.SetMembers(g.listed(1, 2))
	g.listeners[2] = listen(t)
	g.members = map[uint64]string{1: g.members[1], 2: g.listeners[2].Addr().String()}
	b := g.start(2, nil)
	b.awaitConnected(1)
	a.awaitConnected(2)
	a.Send(2, true, []byte("answer"))
	b.wantNext(1, "answer")
}

// The list is right and the member does not know it yet: it says that it is at its former address.
func TestMemberThatSaysItsFormerAddressIsReachedAtTheListed(t *testing.T) {
	for _, certificates := range []bool{false, true} {
		t.Run(fmt.Sprint("certificates ", certificates), func(t *testing.T) {
			ca := authority.New(t, "authority")
			g := newCluster(t, 1, 2)
			secured := func(c *Config, _ *member) {
				if certificates {
					c.Files = filesOf(t, ca, here, ca)
				}
			}
			former := listen(t)
			former.Close()
			b := g.start(2, func(c *Config, m *member) {
				secured(c, m)
				c.Members = map[uint64]string{1: g.members[1], 2: former.Addr().String()}
			})
			a := g.start(1, secured)
			a.SetMembers(g.listed(1, 2))
			b.awaitConnected(1)
			a.awaitConnected(2)
			a.Send(2, true, []byte("here you are"))
			b.wantNext(1, "here you are")
		})
	}
}

func TestLinksTryBothAddressesInTurn(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	a := g.start(1, nil)
	l := a.link(2)
	dialled := func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.turn()
		return l.target()
	}
	l.calledFrom("127.0.0.1:1", true)
	if first, second := dialled(), dialled(); first == second || first != "127.0.0.1:1" && second != "127.0.0.1:1" {
		t.Errorf("it dials %s and %s", first, second)
	}
	for range 2 {
		l.calledFrom(l.address, true)
		if got := dialled(); got != l.address {
			t.Errorf("it dials %s, where the member is no longer", got)
		}
	}
}

// Another gRPC server has the former address of a member. The link does not stay with it, and neither do clients' calls.
func TestLinkLeavesAnotherServerAtTheFormerAddress(t *testing.T) {
	g := newCluster(t, 1, 2)
	other, l := grpc.NewServer(), g.listeners[2]
	served := make(chan error, 1)
	go func() { served <- other.Serve(l) }()
	defer func() {
		other.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	a := g.start(1, nil)
	a.SetMembers(g.listed(1, 2))
	call := func() error {
		_, err := healthpb.NewHealthClient(a.Conn(2)).Check(within(t), &healthpb.HealthCheckRequest{})
		return err
	}
	a.await("another server is there", 2, func(s PeerStatus) bool {
		return s.Err != nil && strings.Contains(s.Err.Error(), "is not a member of a cluster")
	})
	if err := call(); status.Code(err) != codes.Unimplemented {
		t.Fatalf("the other server says %v", err)
	}
	g.listeners[2] = listen(t)
	g.members = map[uint64]string{1: g.members[1], 2: g.listeners[2].Addr().String()}
	b := g.startServing(2, new(asked))
	defer b.Close(within(t))
	a.awaitConnected(2)
	a.eventually("calls reach the member", func() bool { return call() == nil })
}

// A caller with a certificate of the members' authority says that it is a member at another address than the list has.
// Frames may go there. Calls of clients go there only if the caller has proven to be at the listed address.
func TestClientCallsFollowOnlyListedCallers(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	a := g.start(1, nil)
	l := a.link(2)
	targets := func() [2]string {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.useOther = true
		return [2]string{l.target(), l.callsTarget()}
	}
	const x, y = "127.0.0.1:1", "127.0.0.1:2"
	for _, c := range []struct {
		claimed string
		listed  bool
		want    [2]string
	}{
		{x, false, [2]string{x, l.address}},
		{x, true, [2]string{x, x}},
		{x, false, [2]string{x, x}}, // once proven
		{y, false, [2]string{y, l.address}},
	} {
		l.calledFrom(c.claimed, c.listed)
		if got := targets(); got != c.want {
			t.Errorf("frames and calls go to %s after %+v", got, c)
		}
	}
}

func TestOwnNewAddressIsSaid(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	a := g.start(1, nil)
	before := a.link(2).greeting().text[0]
	a.SetMembers([]roster.Member{{ID: 1, PeerURLs: []string{"https://moved.example:1/"}}, {ID: 2, PeerURLs: []string{g.members[2]}}})
	if a.self() != "moved.example:1" || a.link(2).greeting().text[0] == before {
		t.Errorf("this member says that it is at %q", a.self())
	}
}

// Members come and go while frames flow.
func TestMembersChangeDuringTraffic(t *testing.T) {
	g := newCluster(t, 1, 2, 3)
	a, b := g.start(1, only(g, 1, 2)), g.start(2, only(g, 1, 2))
	g.start(3, nil)
	a.awaitConnected(2)
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for i := range 50 {
			list := g.listed(1, 2)
			if i%2 == 0 {
				list = g.listed(1, 2, 3)
			}
			a.SetMembers(list)
			a.Send(3, i%3 == 0, []byte("perhaps"))
			a.Status()
		}
	}()
	for i := range 200 {
		a.Send(2, true, []byte(numbered("frame", i)))
		b.wantNext(1, numbered("frame", i))
	}
	<-changed
}

func TestSetMembersAfterCloseDoesNothing(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	a := g.start(1, only(g, 1))
	a.stop()
	a.SetMembers(g.listed(1, 2))
	if a.has(2) {
		t.Error("a closed transport has a new link")
	}
	if _, err := a.welcome(2, g.members[2], false); err == nil {
		t.Error("a closed transport welcomes a caller")
	}
}

func TestWrongAddressOfAMemberIsLogged(t *testing.T) {
	g := newCluster(t, 1)
	a := g.start(1, nil)
	a.SetMembers([]roster.Member{{ID: 1, PeerURLs: []string{g.members[1]}}, {ID: 2, PeerURLs: []string{"nowhere"}}})
	if a.has(2) || a.log.count("leasekeeper member update") != 1 {
		t.Errorf("the log does not say what to do:\n%s", a.log.text.String())
	}
}

var _ peerpb.PeerServer = (*service)(nil)
