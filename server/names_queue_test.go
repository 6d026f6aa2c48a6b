package server

import (
	"fmt"
	"math"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// queue returns the first waiters for the name n, as texts.
func (f *front) queue(waiters int32) (found []string) {
	f.t.Helper()
	resp, err := f.names().Get(f.ctx(), &leasekeeperv1.GetRequest{Name: "n", Waiters: waiters})
	wantOK(f.t, err)
	for _, w := range resp.Waiters {
		who := w.Holder.GetId()
		if w.Recipe {
			who = "recipe " + w.Holder.GetText()
		}
		if w.Priority > math.MaxInt16 {
			who = "preferred " + who
		}
		found = append(found, fmt.Sprint(w.Lease, " ", who))
	}
	return found
}

func TestGetListsWaiters(t *testing.T) {
	f := startFront(t)
	wantSlice(t, "waiters of an unknown name", f.queue(9), nil)
	f.hold("n", 1, 60_000)
	wantSlice(t, "no waiters", f.queue(9), nil)
	f.waitWith(2, 0)
	f.waitWith(3, 5)
	f.grant(60, 9)
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("n/9"), Lease: 9, Value: []byte("theirs")})
	wantOK(t, err)
	f.put("n/more/1", "of another name")
	wantSlice(t, "waiters", f.queue(9), []string{"3 d", "2 c", "9 recipe theirs"})
	wantSlice(t, "the first waiter", f.queue(1), []string{"3 d"})
	wantSlice(t, "waiters that were not requested", f.queue(0), nil)
	wantSlice(t, "a negative number of waiters", f.queue(-1), nil)
	wantSlice(t, "more waiters than the bound", f.queue(math.MaxInt32), []string{"3 d", "2 c", "9 recipe theirs"})
	wantOK(t, f.prefer("c"))
	wantSlice(t, "waiters after a preference", f.queue(9), []string{"2 preferred c", "9 recipe theirs", "3 d"})
}

// A refused claim shows the holder of a name but no waiter, so the right to hold the name is not enough.
func TestWaitersNeedTheRightToWatch(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		f.grantRight("jobs/", hold)
		get := func(waiters int32) error {
			_, err := f.names().Get(f.as("alice"), &leasekeeperv1.GetRequest{Name: "jobs/a", Waiters: waiters})
			return err
		}
		wantOK(t, get(0))
		wantCode(t, get(1), codes.PermissionDenied)
		f.grantRight("jobs/", watch)
		wantOK(t, get(1))
		f.revokeRight("jobs/")
	})
}
