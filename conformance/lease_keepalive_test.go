package conformance

import (
	"context"
	"io"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keepAlive is one bare LeaseKeepAlive stream.
type keepAlive struct {
	t      *testing.T
	stream pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

func (s *server) keepAlive() keepAlive {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.context())
	stream, err := s.stubs().LeaseKeepAlive(ctx)
	wantOK(s.t, "opening a keep-alive stream", err)
	return keepAlive{s.t, stream, cancel}
}

// next is the next answer or the end of the stream, either of which is due at once.
func (k keepAlive) next() (*pb.LeaseKeepAliveResponse, error) {
	late := time.AfterFunc(waitLimit, k.cancel)
	defer late.Stop()
	return k.stream.Recv()
}

func (k keepAlive) send(id int64) {
	k.t.Helper()
	wantOK(k.t, "sending a keep-alive", k.stream.Send(&pb.LeaseKeepAliveRequest{ID: id}))
}

// receive checks the next answer, for when only one is due.
func (k keepAlive) receive(id, ttl int64) *pb.LeaseKeepAliveResponse {
	k.t.Helper()
	resp, err := k.next()
	wantOK(k.t, "receiving a keep-alive", err)
	if resp.ID != id || resp.TTL != ttl {
		k.t.Errorf("keep-alive answer %v, want id %d and ttl %d", resp, id, ttl)
	}
	return resp
}

func TestKeepAliveRenewsWithoutAWrite(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := st.grant(60)
		st.put("a", "")
		k := s.keepAlive()
		k.send(int64(lease.ID))
		resp := k.receive(int64(lease.ID), 60)
		wantEqual(t, "header", resp.Header.Revision, 2)
		if h := resp.Header; h.ClusterId == 0 || h.MemberId == 0 || h.RaftTerm == 0 {
			t.Errorf("header is not filled: %v", h)
		}
		wantEqual(t, "a renewal is no write", st.revision(), 2)
	})
}

func TestKeepAliveOfUnknown(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		lease, ended := int64(st.grant(60).ID), int64(st.grant(60).ID)
		st.revoke(clientv3.LeaseID(ended))
		k := s.keepAlive()
		for _, id := range []int64{1, ended, 0, -7} {
			k.send(id)
			resp := k.receive(id, 0)
			wantEqual(t, "header", resp.Header.Revision, 1)
		}
		k.send(lease)
		k.receive(lease, 60)
		// What is in one stream's way is not in another's.
		other := s.keepAlive()
		other.send(lease)
		other.receive(lease, 60)
	})
}

func TestKeepAliveManyOnOneStream(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		var ids []int64
		for i := range 50 {
			ids = append(ids, int64(st.grant(100+int64(i)).ID))
		}
		k := s.keepAlive()
		// All at once, with strangers between them.
		for _, id := range ids {
			k.send(id)
			k.send(12345)
		}
		// Each is answered, in whatever order: nothing waits for another.
		answers := make(map[int64]int64)
		for range 2 * len(ids) {
			resp, err := k.next()
			wantOK(t, "receiving a keep-alive", err)
			if resp.ID == 12345 {
				wantEqual(t, "stranger", resp.TTL, 0)
				continue
			}
			answers[resp.ID] = resp.TTL
		}
		for i, id := range ids {
			wantEqual(t, "ttl", answers[id], 100+int64(i))
		}
	})
}

func TestKeepAliveStreamEndsWithItsClient(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		lease := s.store().grant(60)
		k := s.keepAlive()
		k.send(int64(lease.ID))
		wantOK(t, "closing the sending side", k.stream.CloseSend())
		// What was asked before is still answered.
		k.receive(int64(lease.ID), 60)
		_, err := k.next()
		wantIs(t, "after the last answer", err, io.EOF)
	})
}

func TestKeepAliveOnce(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := st.grant(60)
		for range 3 {
			resp, err := st.c.KeepAliveOnce(s.context(), lease.ID)
			wantOK(t, "keep alive once", err)
			wantEqual(t, "ttl", resp.TTL, 60)
			wantEqual(t, "id", resp.ID, lease.ID)
		}
	})
}

func TestKeepAliveRestoresTheWholeTTL(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := st.grant(30)
		remaining := func() int64 {
			resp, err := st.c.TimeToLive(s.context(), lease.ID)
			wantOK(t, "time to live", err)
			return resp.TTL
		}
		eventually(t, waitLimit, "a few seconds less", func() bool { return remaining() <= 26 })
		sent := time.Now()
		k := s.keepAlive()
		k.send(int64(lease.ID))
		k.receive(int64(lease.ID), 30)
		if r, least := remaining(), 29-int64(time.Since(sent)/time.Second); r < least || r > 30 {
			t.Errorf("%d s remain after a renewal, want %d to 30", r, least)
		}
	})
}

func TestKeepAliveByClientv3(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := st.grant(3)
		st.put("a", "", clientv3.WithLease(lease.ID))
		answers, err := st.c.KeepAlive(s.context(), lease.ID)
		wantOK(t, "keep alive", err)
		// The passing of time is the subject: well past the end of an unrenewed lease.
		end := time.After(time.Duration(lease.TTL)*time.Second + 3*time.Second)
		for renewed := 0; ; {
			select {
			case answer, ok := <-answers:
				if !ok {
					t.Fatalf("keep-alive ended after %d renewals", renewed)
				}
				wantEqual(t, "ttl", answer.TTL, lease.TTL)
				renewed++
				continue
			case <-end:
			}
			break
		}
		wantEqual(t, "the key is still there", st.get("a").Count, 1)
		st.revoke(lease.ID)
		eventually(t, waitLimit, "the channel is closed once the lease has ended", func() bool {
			select {
			case _, ok := <-answers:
				return !ok
			default:
				return false
			}
		})
	})
}
