package remote_test

import (
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
)

// clusterBehaves tests that a group behaves as one server does, whichever of its members is asked.
func clusterBehaves(t *testing.T) {
	g := endpointstest.StartCluster(t)
	backendtest.Run(t, backendtest.Config{New: func(testing.TB) backendtest.Store {
		return backendtest.Store{
			Open: func(t testing.TB) backend.Backend {
				// A follower first: what it does not do itself it sends on.
				b, err := backend.Open(t.Context(), "leasekeeper://"+strings.Join([]string{g.Members[1].Addr, g.Members[2].Addr, g.Members[0].Addr}, ",")+"/")
				ok(t, err)
				return b
			},
			Delete: func(_ testing.TB, name string) { g.Members[2].DeleteOwner(name) },
		}
	}})
}

// The leader vanishes: packets to it and from it are swallowed. Who holds a name goes on to hold it, who stands in line
// gets its turn, and each one that comes gets an answer.
func TestHoldersAndWaitersSurviveLossOfTheLeader(t *testing.T) {
	g := endpointstest.StartCluster(t)
	b := open(t, g.Endpoints()...) // the leader's is the first, and the preferred one
	other := open(t, g.Members[1].Addr, g.Members[2].Addr)
	held, granted := hold(t, b, "held")
	waiting := enqueue(t, b, "held")
	g.Members[0].CutOff()
	for range 3 {
		ok(t, renew(t, b, held).Err)
	}
	hold(t, b, "new")
	info, err := other.Get(limited(t), "held")
	ok(t, err)
	if info.Token != granted.Token {
		t.Errorf("it is held with the token %d, which was %d", info.Token, granted.Token)
	}
	ok(t, b.Release(limited(t), held))
	turn, err := b.Await(limited(t), waiting)
	ok(t, err)
	if turn.Token <= granted.Token {
		t.Errorf("the next in line has the token %d, after %d", turn.Token, granted.Token)
	}
}

// One member after the other is stopped in good order, and its clients go on at others.
func TestClientsContinueWhenTheLeaderStops(t *testing.T) {
	g := endpointstest.StartCluster(t)
	b := open(t, g.Endpoints()...)
	held, _ := hold(t, b, "held")
	stopped := make(chan error, 1)
	go func() { stopped <- g.Members[0].Stop() }()
	for over := false; !over; {
		select {
		case err := <-stopped:
			ok(t, err)
			over = true
		default:
		}
		ok(t, renew(t, b, held).Err)
		name := unique("new")
		l, _ := hold(t, b, name)
		ok(t, b.Release(limited(t), l))
	}
}
