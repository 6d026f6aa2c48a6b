package remote_test

import (
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
)

// clusterBehaves tests that a cluster behaves as one server does, at every member.
func clusterBehaves(t *testing.T) {
	g := endpointstest.StartCluster(t)
	backendtest.Run(t, backendtest.Config{New: func(testing.TB) backendtest.Store {
		return backendtest.Store{
			Open: func(t testing.TB) backend.Backend {
				// A follower comes first: it forwards what only the leader can do.
				b, err := backend.Open(t.Context(), "leasekeeper://"+strings.Join([]string{g.Members[1].Addr, g.Members[2].Addr, g.Members[0].Addr}, ",")+"/")
				ok(t, err)
				return b
			},
			Delete: func(_ testing.TB, name string) { g.Members[2].DeleteOwner(name) },
		}
	}})
}

// The network drops all packets to and from the leader. A holder keeps its name, a waiter gets its turn, and a new claim gets
// an answer.
func TestHoldersAndWaitersSurviveLossOfTheLeader(t *testing.T) {
	g := endpointstest.StartCluster(t)
	b := open(t, g.Endpoints()...) // the leader's endpoint is first, so it is preferred
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
		t.Errorf("the next waiter has the token %d, after %d", turn.Token, granted.Token)
	}
}

// The leader stops in order while its client renews, claims and releases. The client continues at another member.
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
