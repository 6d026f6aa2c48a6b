package conformance

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stillServes checks that a server answers a client that comes now: with a connection of its own, and on all of the
// streams.
func (s *server) stillServes() {
	s.t.Helper()
	st := s.store()
	key := fmt.Sprintf("still-%d", time.Now().UnixNano())
	w := s.watch()
	id := w.watchKey(key, "", 0)
	lease := st.grant(600).ID
	put := st.put(key, "1", clientv3.WithLease(lease))
	wantEqual(s.t, "watched", len(w.eventsUntil(put.Header.Revision)[id]) > 0, true)
	k := s.keepAlive()
	k.send(int64(lease))
	k.receive(int64(lease), 600)
	st.revoke(lease)
	wantEqual(s.t, "revoked", st.get(key).Count, 0)
	code, _, err := httpGet("http://" + s.httpAddr + "/readyz")
	wantOK(s.t, "readyz", err)
	wantEqual(s.t, "readyz", code, 200)
}

func TestStreamsThatAreDropped(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		const streams = 2000
		stubs := s.stubs()
		lease := int64(s.store().grant(600).ID)
		for i := range streams {
			ctx, cancel := context.WithCancel(s.t.Context())
			switch i % 4 {
			case 0: // opened and nothing more
				_, err := stubs.watch.Watch(ctx)
				wantOK(t, "watch", err)
			case 1: // dropped before the answer
				stream, err := stubs.watch.Watch(ctx)
				wantOK(t, "watch", err)
				wantOK(t, "create", stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
					CreateRequest: &pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 1}}}))
			case 2: // dropped after it
				stream, err := stubs.watch.Watch(ctx)
				wantOK(t, "watch", err)
				wantOK(t, "create", stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
					CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}}))
				_, err = stream.Recv()
				wantOK(t, "created", err)
			case 3:
				stream, err := stubs.LeaseKeepAlive(ctx)
				wantOK(t, "keep alive", err)
				wantOK(t, "renew", stream.Send(&pb.LeaseKeepAliveRequest{ID: lease}))
			}
			cancel()
		}
		s.stillServes()
		_, err := stubs.Put(s.context(), &pb.PutRequest{Key: []byte("a")})
		wantOK(t, "the connection that carried them goes on", err)
	})
}

// As many at once, that end with their connection.
func TestConnectionsThatAreDropped(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		const connections, streams = 20, 100
		for range connections {
			c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(s.addresses(), ",")})
			wantOK(t, "client", err)
			watch := pb.NewWatchClient(c.ActiveConnection())
			for range streams {
				stream, err := watch.Watch(s.context())
				wantOK(t, "watch", err)
				wantOK(t, "create", stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
					CreateRequest: &pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("b")}}}))
			}
			wantOK(t, "closing", c.Close())
		}
		s.stillServes()
	})
}

// Whatever arrives on the port, it is not the server that suffers.
func TestConnectionsThatAreNoGRPC(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		for _, bytes := range []string{
			"", "\x00", "GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", "PRI * HTTP/2.0\r\n",
			preface,
			preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
			preface + "\xff\xff\xff\x04\x00\x00\x00\x00\x00",
			preface + "\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff",
			preface + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		} {
			for range 5 {
				conn, err := net.Dial("tcp", s.grpcAddr)
				wantOK(t, "dialing", err)
				_, err = conn.Write([]byte(bytes))
				wantOK(t, "writing", err)
				wantOK(t, "closing", conn.Close())
			}
		}
		s.stillServes()
	})
}

// Clients that vanish while they wait for a lock take their place in the queue
// with them.
func TestWaitersThatAreDropped(t *testing.T) {
	withLock(t, func(t *testing.T, s *server) {
		st, l := s.store(), s.locks()
		key := l.lock("name", st.grant(600).ID)
		waiters := 40
		if s.target == etcd {
			// Of many calls that are given up at once its lock service can lock up for good: what it has inside for a
			// stream of watches waits for itself (github.com/etcd-io/etcd/issues/13336 and 20716).
			waiters = 1
		}
		ctx, cancel := context.WithCancel(s.context())
		var got []<-chan error
		leases := st.grantMany(waiters, 600)
		for _, lease := range leases {
			got = append(got, l.beginLock(ctx, "name", clientv3.LeaseID(lease)))
		}
		st.awaitMembers("name", waiters+1)
		cancel()
		for _, g := range got {
			if due(t, "lock", waitLimit, g) == nil {
				t.Error("a waiter got the lock")
			}
		}
		if s.target == etcd {
			// It also leaves the key of a waiter that gave up before it received the answer that
			// its key was written.
			for _, lease := range leases {
				st.revoke(clientv3.LeaseID(lease))
			}
		}
		st.awaitMembers("name", 1)
		next := l.beginLock(s.context(), "name", st.grant(600).ID)
		st.awaitMembers("name", 2)
		l.unlock(key)
		wantOK(t, "next", due(t, "lock", waitLimit, next))
		s.stillServes()
	})
}
