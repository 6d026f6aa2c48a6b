package etcd_test

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
)

// The leader vanishes: packets to it and from it are swallowed. Who holds a name goes on to hold it, who stands in line
// gets its turn, and each one that comes gets an answer.
func TestHoldersAndWaitersSurviveLossOfTheLeader(t *testing.T) {
	g := endpointstest.StartCluster(t)
	b := open(t, g.Endpoints()...) // the leader's is the first, and the preferred one
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
		t.Errorf("the next in line has the token %d, after %d", turn.Token, granted.Token)
	}
}
