package conformance

import (
	"fmt"
	"io"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// rangeStream returns the answer of a RangeStream, joined, and the number of its parts.
func (s *server) rangeStream(r *pb.RangeRequest) (joined *pb.RangeResponse, parts int, err error) {
	s.t.Helper()
	stream, err := s.stubs().RangeStream(s.context(), r)
	wantOK(s.t, "opening a stream", err)
	joined = &pb.RangeResponse{}
	for {
		part, err := stream.Recv()
		if err == io.EOF {
			return joined, parts, nil
		}
		if err != nil {
			return joined, parts, err
		}
		parts++
		wantEqual(s.t, "header before the last part", joined.Header == nil, true)
		proto.Merge(joined, part.RangeResponse)
	}
}

func TestRangeStreamAnswersAsRange(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		for i := range 30 {
			st.put(fmt.Sprintf("k%02d", i), strings.Repeat("x", i%3*200_000)) // 2 to 31
		}
		st.put("k00", "again") // 32
		st.delete("k01")       // 33
		s.settle()
		all := func(change func(*pb.RangeRequest)) *pb.RangeRequest {
			r := &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")}
			change(r)
			return r
		}
		for name, r := range map[string]*pb.RangeRequest{
			"all":                all(func(*pb.RangeRequest) {}),
			"of an old revision": all(func(r *pb.RangeRequest) { r.Revision = 20 }),
			"limited":            all(func(r *pb.RangeRequest) { r.Limit = 17 }),
			"limited to all":     all(func(r *pb.RangeRequest) { r.Limit = 29 }),
			"above all":          all(func(r *pb.RangeRequest) { r.Limit = 100 }),
			"limited to one":     all(func(r *pb.RangeRequest) { r.Limit = 1 }),
			"keys only":          all(func(r *pb.RangeRequest) { r.KeysOnly = true }),
			"count only":         all(func(r *pb.RangeRequest) { r.CountOnly = true }),
			"serializable":       all(func(r *pb.RangeRequest) { r.Serializable = true }),
			"ascending":          all(func(r *pb.RangeRequest) { r.SortOrder = pb.RangeRequest_ASCEND }),
			"one key":            {Key: []byte("k05")},
			"no key":             {Key: []byte("none")},
			"an empty interval":  {Key: []byte("z"), RangeEnd: []byte("a")},
			"all keys":           {Key: []byte{0}, RangeEnd: []byte{0}},
		} {
			got, _, err := s.rangeStream(r)
			wantOK(t, name, err)
			want, err := s.stubs().KVClient.Range(s.context(), r)
			wantOK(t, name, err)
			got.Header.MemberId, want.Header.MemberId = 0, 0 // the two may come from different members
			if !proto.Equal(got, want) {
				t.Errorf("%s: %d keys of %d, more %v, header %v; Range has %d of %d, more %v, header %v", name,
					len(got.Kvs), got.Count, got.More, got.Header, len(want.Kvs), want.Count, want.More, want.Header)
			}
		}
		_, parts, err := s.rangeStream(all(func(*pb.RangeRequest) {}))
		wantOK(t, "all", err)
		wantEqual(t, "it comes in parts", parts > 1, true)
	})
}

func TestRangeStreamRefusals(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		for range 4 {
			st.put("a", "") // 2 to 5
		}
		st.compact(3)
		s.settle()
		const sorts, filters = "RangeStream does not support custom sort orders", "RangeStream does not support revision filters"
		key := []byte("a")
		for _, c := range []struct {
			r    *pb.RangeRequest
			code codes.Code
			text string
		}{
			{&pb.RangeRequest{}, codes.InvalidArgument, "etcdserver: key is not provided"},
			{&pb.RangeRequest{Key: key, SortOrder: 7}, codes.InvalidArgument, "etcdserver: invalid sort option"},
			{&pb.RangeRequest{Key: key, SortTarget: 7}, codes.InvalidArgument, "etcdserver: invalid sort option"},
			{&pb.RangeRequest{Key: key, SortOrder: pb.RangeRequest_DESCEND}, codes.Unimplemented, sorts},
			{&pb.RangeRequest{Key: key, SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_MOD}, codes.Unimplemented, sorts},
			{&pb.RangeRequest{Key: key, MinModRevision: 1}, codes.Unimplemented, filters},
			{&pb.RangeRequest{Key: key, MaxModRevision: 1}, codes.Unimplemented, filters},
			{&pb.RangeRequest{Key: key, MinCreateRevision: 1}, codes.Unimplemented, filters},
			{&pb.RangeRequest{Key: key, MaxCreateRevision: 1}, codes.Unimplemented, filters},
			{&pb.RangeRequest{Key: key, Revision: 2}, codes.OutOfRange, textCompacted},
			{&pb.RangeRequest{Key: key, Revision: 9}, codes.OutOfRange, textFutureRevision},
		} {
			_, _, err := s.rangeStream(c.r)
			wantStatus(t, c.r.String(), err, c.code, c.text)
		}
	})
}

func TestEtcdctlGetStream(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		s.mustCtl("put", "a", "1")
		s.mustCtl("put", "b", "2")
		s.settle()
		s.wantCtl("a\n1\nb\n2\n", "get", "--stream", "--prefix", "")
	})
}
