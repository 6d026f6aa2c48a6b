package server

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// asIs is a codec that sends and receives bytes unchanged, under the name of protobuf.
type asIs struct{}

func (asIs) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (asIs) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (asIs) Name() string { return "proto" }

// named are the codes with which a healthy member may refuse a KV request. Any other code means a fault in the member.
var named = map[codes.Code]bool{
	codes.InvalidArgument: true, codes.OutOfRange: true, codes.NotFound: true, codes.ResourceExhausted: true,
}

// throw sends bytes as a request. It returns false if they are refused. It fails if the code is not in named, or if a
// refused request has changed something.
func (f *front) throw(t *testing.T, method string, data []byte, req, resp proto.Message) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	before := f.node.Header().Revision
	var answer []byte
	err := f.conn.Invoke(ctx, method, &data, &answer, grpc.ForceCodec(asIs{}))
	if _, alive := f.kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true}); alive != nil {
		t.Fatalf("after %x, which was answered with %v, nothing is: %v", data, err, alive)
	}
	senseless := proto.Unmarshal(data, req) != nil
	switch {
	case senseless && status.Code(err) == codes.Internal: // gRPC's own answer
	case senseless:
		t.Fatalf("%x is no request, and was answered with %v", data, err)
	case err == nil:
		if err := proto.Unmarshal(answer, resp); err != nil {
			t.Fatalf("the answer to %v cannot be read: %v", req, err)
		}
		return true
	case !named[status.Code(err)]:
		t.Fatalf("%v: %v", req, err)
	}
	if after := f.node.Header().Revision; after != before {
		t.Fatalf("%v failed with %v and changed something", req, err)
	}
	return false
}

func seeds(f *testing.F, requests ...proto.Message) {
	f.Add([]byte(nil))
	f.Add([]byte{0xff})
	f.Add([]byte{0x0a, 0x7f, 'a'})
	for _, r := range requests {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// FuzzTxnRequest sends arbitrary bytes as a transaction, as a client could.
func FuzzTxnRequest(f *testing.F) {
	deep := &pb.TxnRequest{}
	for range 200 {
		deep = &pb.TxnRequest{Success: []*pb.RequestOp{opTxn(deep)}, Failure: []*pb.RequestOp{opPut("a", "1")}}
	}
	put := func(r *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	}
	ranged := func(r *pb.RangeRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	}
	a := []byte("a")
	seeds(f, deep,
		&pb.TxnRequest{Compare: []*pb.Compare{absent("a")}, Success: []*pb.RequestOp{opPut("a", "1"), opGet("a")}, Failure: []*pb.RequestOp{opDelete("a", "")}},
		&pb.TxnRequest{Compare: []*pb.Compare{{Target: 99, Result: -7, Key: a}, {Key: a, RangeEnd: []byte{0}, Target: pb.Compare_VALUE}}},
		&pb.TxnRequest{Success: []*pb.RequestOp{{}}, Failure: []*pb.RequestOp{opPut("", "")}},
		&pb.TxnRequest{Compare: []*pb.Compare{absent("a")}, Failure: []*pb.RequestOp{put(&pb.PutRequest{Key: a, Lease: -1})}},
		&pb.TxnRequest{Success: []*pb.RequestOp{put(&pb.PutRequest{Key: a, IgnoreValue: true}), put(&pb.PutRequest{Key: a, IgnoreLease: true})}},
		&pb.TxnRequest{Success: []*pb.RequestOp{put(&pb.PutRequest{Key: a, Value: a, IgnoreValue: true, Lease: 1, IgnoreLease: true})}},
		&pb.TxnRequest{Success: []*pb.RequestOp{opDelete("\xff", "a"), opDelete("a", "\x00"), opPut("\x00", "")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{
			ranged(&pb.RangeRequest{Key: a, Revision: -1}), ranged(&pb.RangeRequest{Key: a, Revision: 1 << 62}),
			ranged(&pb.RangeRequest{Key: a, SortOrder: 9, SortTarget: -9}), ranged(&pb.RangeRequest{Key: a, Limit: -1}),
		}},
	)
	front := startFront(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var req pb.TxnRequest
		var resp pb.TxnResponse
		before := front.node.Header().Revision
		if !front.throw(t, "/etcdserverpb.KV/Txn", data, &req, &resp) {
			return
		}
		after := front.node.Header().Revision
		if after > before+1 || resp.GetHeader().GetRevision() != after {
			t.Fatalf("%v took the revision from %d to %d and answered %d", &req, before, after, resp.GetHeader().GetRevision())
		}
		branch := req.Success
		if !resp.Succeeded {
			branch = req.Failure
		}
		if len(resp.Responses) != len(branch) {
			t.Fatalf("%v has %d answers", &req, len(resp.Responses))
		}
	})
}

// FuzzRangeRequest sends every decodable range request, and checks the answer against the request.
func FuzzRangeRequest(f *testing.F) {
	a := []byte("a")
	seeds(f,
		&pb.RangeRequest{Key: a}, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Limit: 3},
		&pb.RangeRequest{Key: a, RangeEnd: []byte("z"), Limit: -1, Revision: -1},
		&pb.RangeRequest{Key: a, RangeEnd: []byte("z"), Limit: 1<<63 - 1, Revision: 4, SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_VALUE},
		&pb.RangeRequest{Key: a, RangeEnd: []byte{0}, SortOrder: 5}, &pb.RangeRequest{Key: a, RangeEnd: []byte{0}, SortTarget: -1},
		&pb.RangeRequest{Key: a, Revision: 1}, &pb.RangeRequest{Key: a, Revision: 1<<63 - 1}, &pb.RangeRequest{Key: []byte("z"), RangeEnd: a},
		&pb.RangeRequest{Key: a, RangeEnd: []byte{0}, KeysOnly: true, CountOnly: true, Serializable: true},
		&pb.RangeRequest{Key: a, RangeEnd: []byte{0}, MinModRevision: -1, MaxModRevision: 5, MinCreateRevision: 1<<63 - 1, MaxCreateRevision: -1 << 63},
	)
	front := startFront(f)
	for i := range 20 {
		front.put(fmt.Sprint(string(rune('a'+i%7)), i%3), fmt.Sprint(i))
	}
	_, err := front.kv.Compact(front.ctx(), &pb.CompactionRequest{Revision: 3})
	wantOK(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		var req pb.RangeRequest
		var resp pb.RangeResponse
		if !front.throw(t, "/etcdserverpb.KV/Range", data, &req, &resp) {
			return
		}
		n := int64(len(resp.Kvs))
		if n > resp.Count || req.Limit > 0 && n > req.Limit || req.CountOnly && n > 0 {
			t.Fatalf("%v is answered with %d keys of %d", &req, n, resp.Count)
		}
		for _, kv := range resp.Kvs {
			if req.KeysOnly && len(kv.Value) > 0 || req.Revision > 0 && kv.ModRevision > req.Revision {
				t.Fatalf("%v is answered with %v", &req, kv)
			}
		}
	})
}
