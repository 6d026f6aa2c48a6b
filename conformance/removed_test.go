package conformance

import (
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A removed member refuses new connections and lets a request finish that it has forwarded, as on SIGTERM. Then it ends with
// code 1.
func TestRemovedMemberLetsARequestFinish(t *testing.T) {
	t.Parallel()
	if len(chosen(leasekeeper, follower, everyone)) == 0 {
		return
	}
	g := startCluster(t, leasekeeper)
	leader := g.leader()
	m := g.other(leader)
	l := leader.locks()
	held := l.lock("lock", 0)
	waiting := m.locks().beginLock(m.context(), "lock", 0)
	leader.store().awaitMembers("lock", 2)
	st, err := m.status()
	wantOK(t, "status", err)
	_, err = leader.stubs().MemberRemove(leader.context(), &pb.MemberRemoveRequest{ID: st.Header.MemberId})
	wantOK(t, "member remove", err)
	eventually(t, waitLimit, "new connections are refused", func() bool {
		conn, err := net.DialTimeout("tcp", m.grpcAddr, time.Second)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	time.Sleep(2 * time.Second) // the server of a member that has failed cuts requests off after one second
	l.unlock(held)
	wantOK(t, "the lock", due(t, "lock", waitLimit, waiting))
	select {
	case <-m.process.Exited():
	case <-time.After(stopLimit):
		t.Fatal("the removed member goes on")
	}
	wantEqual(t, "exit code", m.process.ExitCode(), 1)
}
