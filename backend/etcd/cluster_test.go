package etcd_test

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
)

// The network drops all packets to and from the leader. A holder keeps its name, a waiter gets its turn, and a new claim gets
// an answer.
func TestHoldersAndWaitersSurviveLossOfTheLeader(t *testing.T) {
	g := endpointstest.StartCluster(t)
	b := open(t, g.Endpoints()...) // the leader's endpoint is first, so it is preferred
	held, granted := hold(t, b, "held")
	waiting := enqueue(t, b, "held")
	g.Members[0].CutOff()
	for range 3 {
		ok(t, renew(t, b, held).Err)
	}
	hold(t, b, "new")
	ok(t, b.Release(limited(t), held))
	turn, err := b.Await(limited(t), waiting)
	ok(t, err)
	if turn.Token <= granted.Token {
		t.Errorf("the next waiter has the token %d, after %d", turn.Token, granted.Token)
	}
}
