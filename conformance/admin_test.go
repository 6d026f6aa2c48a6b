package conformance

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
)

// Who is already the leader can be made the leader: scripts that move the leader to a certain member ask so without
// looking first.
func TestMoveLeaderToTheLeaderSucceeds(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		st := s.stubs()
		status, err := st.Status(s.context(), &pb.StatusRequest{})
		wantOK(t, "status", err)
		_, err = st.MoveLeader(s.context(), &pb.MoveLeaderRequest{TargetID: status.Leader})
		wantOK(t, "to the leader", err)
		_, err = st.MoveLeader(s.context(), &pb.MoveLeaderRequest{TargetID: 1})
		wantStatus(t, "to nobody", err, codes.FailedPrecondition, "etcdserver: bad leader transferee")
		after, err := st.Status(s.context(), &pb.StatusRequest{})
		wantOK(t, "status", err)
		wantEqual(t, "leader", after.Leader, status.Leader)
		wantEqual(t, "term", after.RaftTerm, status.RaftTerm)
	})
}

// There need be no downgrade for one to be canceled.
func TestDowngradeCancel(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		resp, err := s.stubs().Downgrade(s.context(), &pb.DowngradeRequest{Action: pb.DowngradeRequest_CANCEL})
		wantOK(t, "cancel", err)
		wantEqual(t, "version", resp.Version, "3.7")
		wantEqual(t, "etcdctl", s.mustCtl("downgrade", "cancel"), "Downgrade cancel success, cluster version 3.7\n")
	})
}

func TestCompressedRequests(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, compressed := s.stubs(), grpc.UseCompressor(gzip.Name)
		_, err := st.Put(s.context(), &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 1<<20)}, compressed)
		wantOK(t, "put", err)
		resp, err := st.Range(s.context(), &pb.RangeRequest{Key: []byte("a")}, compressed)
		wantOK(t, "range", err)
		wantEqual(t, "value", len(resp.Kvs[0].Value), 1<<20)
		_, err = st.Put(s.context(), &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 1700<<10)}, compressed)
		wantStatus(t, "too large", err, codes.InvalidArgument, "etcdserver: request is too large")
		_, err = st.Put(s.context(), &pb.PutRequest{Key: []byte("a"), Value: make([]byte, 32<<20)}, compressed)
		wantEqual(t, "what swells beyond any limit", codeOf(err), codes.ResourceExhausted)
	})
}
