package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/etcdapi"
)

func opPut(key, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
}

func opGet(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key)}}}
}

func opDelete(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{
		Key: []byte(key), RangeEnd: []byte(end), PrevKv: true}}}
}

func opTxn(r *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
}

func absent(key string) *pb.Compare {
	return &pb.Compare{Target: pb.Compare_CREATE, Key: []byte(key), TargetUnion: &pb.Compare_CreateRevision{}}
}

func TestTxnRunsTheBranchOfItsResult(t *testing.T) {
	f := startFront(t)
	f.put("b", "0")
	resp, err := f.kv.Txn(f.ctx(), &pb.TxnRequest{
		Compare: []*pb.Compare{absent("a")},
		Success: []*pb.RequestOp{
			opGet("b"), opPut("a", "1"), opGet("a"), opDelete("b", ""),
			opTxn(&pb.TxnRequest{
				Compare: []*pb.Compare{absent("a")}, // the comparison sees the state before the transaction
				Success: []*pb.RequestOp{opGet("b")},
			}),
		},
	})
	wantOK(t, err)
	f.header(resp.Header, 3)
	wantEqual(t, "succeeded", resp.Succeeded, true)
	wantEqual(t, "answers", len(resp.Responses), 5)
	wantEqual(t, "b before", string(resp.Responses[0].GetResponseRange().Kvs[0].Value), "0")
	wantEqual(t, "a after", string(resp.Responses[2].GetResponseRange().Kvs[0].Value), "1")
	wantEqual(t, "deleted", resp.Responses[3].GetResponseDeleteRange().Deleted, 1)
	nested := resp.Responses[4].GetResponseTxn()
	wantEqual(t, "nested succeeded", nested.Succeeded, true)
	wantEqual(t, "b after", nested.Responses[0].GetResponseRange().Count, 0)
	for i, c := range []struct {
		got  *pb.ResponseHeader
		want int64
	}{
		{resp.Responses[0].GetResponseRange().Header, 2}, {resp.Responses[1].GetResponsePut().Header, 3},
		{resp.Responses[2].GetResponseRange().Header, 3}, {resp.Responses[3].GetResponseDeleteRange().Header, 3},
		{nested.Header, 0}, {nested.Responses[0].GetResponseRange().Header, 3},
	} {
		if want := (&pb.ResponseHeader{Revision: c.want}); c.got == nil || !proto.Equal(c.got, want) {
			t.Errorf("header %d is %v, want %v", i, c.got, want)
		}
	}
}

// Each target with each result, and a union member of another target.
func TestTxnComparesEveryTargetAndResult(t *testing.T) {
	f := startFront(t)
	f.grant(60, 7)
	f.put("a", "x")
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a"), Value: []byte("m"), Lease: 7})
	wantOK(t, err) // create 2, mod 3, version 2, lease 7
	number := map[pb.Compare_CompareTarget]func(n int64) *pb.Compare{
		pb.Compare_VERSION: func(n int64) *pb.Compare { return &pb.Compare{TargetUnion: &pb.Compare_Version{Version: n}} },
		pb.Compare_CREATE: func(n int64) *pb.Compare {
			return &pb.Compare{TargetUnion: &pb.Compare_CreateRevision{CreateRevision: n}}
		},
		pb.Compare_MOD: func(n int64) *pb.Compare { return &pb.Compare{TargetUnion: &pb.Compare_ModRevision{ModRevision: n}} },
		pb.Compare_VALUE: func(n int64) *pb.Compare {
			return &pb.Compare{TargetUnion: &pb.Compare_Value{Value: []byte{byte(n)}}}
		},
		pb.Compare_LEASE: func(n int64) *pb.Compare { return &pb.Compare{TargetUnion: &pb.Compare_Lease{Lease: n}} },
	}
	is := map[pb.Compare_CompareTarget]int64{
		pb.Compare_VERSION: 2, pb.Compare_CREATE: 2, pb.Compare_MOD: 3, pb.Compare_VALUE: 'm', pb.Compare_LEASE: 7,
	}
	holds := func(c *pb.Compare) bool {
		t.Helper()
		resp, err := f.kv.Txn(f.ctx(), &pb.TxnRequest{Compare: []*pb.Compare{c}})
		wantOK(t, err)
		return resp.Succeeded
	}
	for target, make := range number {
		for diff, want := range map[int64][4]bool{0: {true, false, false, false}, -1: {false, true, false, true}, 1: {false, false, true, true}} {
			for result, want := range want {
				c := make(is[target] + diff)
				c.Target, c.Result, c.Key = target, pb.Compare_CompareResult(result), []byte("a")
				wantEqual(t, fmt.Sprint(c), holds(c), want)
			}
		}
		other := number[(target+1)%5](is[target]) // counts as zero
		other.Target, other.Key = target, []byte("a")
		wantEqual(t, "with the wrong union "+fmt.Sprint(other), holds(other), false)
		other.Key = []byte("none")
		wantEqual(t, "of no key "+fmt.Sprint(other), holds(other), target != pb.Compare_VALUE)
	}
}

func TestMalformedTxnIsRefused(t *testing.T) {
	f := startFront(t)
	txn := func(ops ...*pb.RequestOp) *pb.TxnRequest { return &pb.TxnRequest{Success: ops} }
	for _, c := range []struct {
		req  *pb.TxnRequest
		want error
	}{
		{&pb.TxnRequest{Compare: []*pb.Compare{{}}}, rpctypes.ErrGRPCEmptyKey},
		{txn(opGet("")), rpctypes.ErrGRPCEmptyKey},
		{txn(opPut("", "")), rpctypes.ErrGRPCEmptyKey},
		{txn(opDelete("", "z")), rpctypes.ErrGRPCEmptyKey},
		{txn(&pb.RequestOp{}), rpctypes.ErrGRPCKeyNotFound},
		{txn(opTxn(txn(&pb.RequestOp{}))), rpctypes.ErrGRPCKeyNotFound},
		{txn(slices.Repeat([]*pb.RequestOp{opGet("a")}, 129)...), rpctypes.ErrGRPCTooManyOps},
		{txn(opPut("a", ""), opPut("a", "")), rpctypes.ErrGRPCDuplicateKey},
		{txn(opPut("b", ""), opDelete("a", "c")), rpctypes.ErrGRPCDuplicateKey},
		{txn(&pb.RequestOp{Request: &pb.RequestOp_RequestRange{
			RequestRange: &pb.RangeRequest{Key: []byte("a"), SortOrder: 7}}}), rpctypes.ErrGRPCInvalidSortOption},
		{txn(&pb.RequestOp{Request: &pb.RequestOp_RequestRange{
			RequestRange: &pb.RangeRequest{Key: []byte("a"), Revision: 2}}}), rpctypes.ErrGRPCFutureRev},
		{txn(&pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte("a"), Lease: 1}}}), rpctypes.ErrGRPCLeaseNotFound},
		{txn(&pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte("a"), IgnoreValue: true}}}), rpctypes.ErrGRPCKeyNotFound},
		{txn(&pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: &pb.PutRequest{Key: []byte("a"), IgnoreLease: true, Lease: 1}}}), rpctypes.ErrGRPCLeaseProvided},
		{txn(opPut("a", string(bytes.Repeat([]byte("x"), DefaultMaxRequestBytes)))), rpctypes.ErrGRPCRequestTooLarge},
	} {
		_, err := f.kv.Txn(f.ctx(), c.req)
		wantStatus(t, err, c.want)
	}
	wantEqual(t, "revision after nothing but refusals", f.node.Header().Revision, 1)
}

// MaxTxnOps bounds each list of a transaction, and what a nested transaction has left.
func TestTxnLimitIsThatOfTheConfiguration(t *testing.T) {
	cfg := anyPort()
	cfg.MaxTxnOps = 2
	f := startWith(t, cfg, nil)
	gets := func(n int) []*pb.RequestOp { return slices.Repeat([]*pb.RequestOp{opGet("a")}, n) }
	for what, txn := range map[string]func(n int) *pb.TxnRequest{
		"compare": func(n int) *pb.TxnRequest {
			return &pb.TxnRequest{Compare: slices.Repeat([]*pb.Compare{absent("a")}, n)}
		},
		"success": func(n int) *pb.TxnRequest { return &pb.TxnRequest{Success: gets(n)} },
		"failure": func(n int) *pb.TxnRequest { return &pb.TxnRequest{Failure: gets(n)} },
		"nested": func(n int) *pb.TxnRequest {
			return &pb.TxnRequest{Success: []*pb.RequestOp{opTxn(&pb.TxnRequest{Failure: gets(n - 1)})}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := f.kv.Txn(f.ctx(), txn(2))
			wantOK(t, err)
			_, err = f.kv.Txn(f.ctx(), txn(3))
			wantStatus(t, err, rpctypes.ErrGRPCTooManyOps)
		})
	}
	_, err := f.kv.Txn(f.ctx(), &pb.TxnRequest{Success: []*pb.RequestOp{opPut("a", ""), opPut("b", ""), opPut("c", "")}})
	wantStatus(t, err, rpctypes.ErrGRPCTooManyOps)
	wantEqual(t, "revision after a refusal", f.node.Header().Revision, 1)
	_, err = f.kv.Txn(f.ctx(), &pb.TxnRequest{Success: []*pb.RequestOp{opPut("a", ""), opPut("b", "")}})
	wantOK(t, err)
	wantEqual(t, "revision after two puts", f.node.Header().Revision, 2)
}

func TestTxnWithoutWritesMakesNoRevision(t *testing.T) {
	f := startFront(t)
	f.put("a", "1")
	resp, err := f.kv.Txn(f.ctx(), &pb.TxnRequest{})
	wantOK(t, err)
	f.header(resp.Header, 2)
	wantEqual(t, "an empty txn succeeds", resp.Succeeded, true)
	nothing, err := f.kv.Txn(f.ctx(), &pb.TxnRequest{Success: []*pb.RequestOp{opDelete("x", ""), opGet("a")}})
	wantOK(t, err)
	f.header(nothing.Header, 2)
	wantEqual(t, "deleted", nothing.Responses[0].GetResponseDeleteRange().Deleted, 0)
}

// kvSpy records requests to the member, and can delay them.
type kvSpy struct {
	*node.Node
	serializable bool
	compacting   time.Duration
}

func (s *kvSpy) Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error) {
	s.serializable = serializable
	return s.Node.Txn(ctx, req, serializable)
}

func (s *kvSpy) Compact(ctx context.Context, _ int64, _ bool) (replica.Header, error) {
	select {
	case <-time.After(s.compacting):
		return s.Node.Header(), nil
	case <-ctx.Done():
		return replica.Header{}, ctx.Err()
	}
}

// A transaction is serializable if it has ranges and all of them are, in every branch.
func TestTxnIsSerializableIfAllItsRangesAre(t *testing.T) {
	spy := new(kvSpy)
	f := startWith(t, anyPort(), func(n *node.Node) member { spy.Node = n; return spy })
	get := func(serializable bool) *pb.RequestOp {
		op := opGet("a")
		op.GetRequestRange().Serializable = serializable
		return op
	}
	for _, c := range []struct {
		req  *pb.TxnRequest
		want bool
	}{
		{&pb.TxnRequest{Compare: []*pb.Compare{absent("a")}}, false},
		{&pb.TxnRequest{Success: []*pb.RequestOp{get(true)}, Failure: []*pb.RequestOp{get(true)}}, true},
		{&pb.TxnRequest{Success: []*pb.RequestOp{get(true)}, Failure: []*pb.RequestOp{get(false)}}, false},
		{&pb.TxnRequest{Success: []*pb.RequestOp{get(true), opTxn(&pb.TxnRequest{Failure: []*pb.RequestOp{get(false)}})}}, false},
		{&pb.TxnRequest{Success: []*pb.RequestOp{opTxn(&pb.TxnRequest{Failure: []*pb.RequestOp{get(true)}})}}, true},
	} {
		_, err := f.kv.Txn(f.ctx(), c.req)
		wantOK(t, err)
		wantEqual(t, fmt.Sprint("serializable ", c.req), spy.serializable, c.want)
	}
}

// A physical compaction may last longer than other requests, but not longer than its client allows.
func TestPhysicalCompactionHasNoTimeLimit(t *testing.T) {
	cfg := anyPort()
	cfg.RequestTimeout = 20 * time.Millisecond
	spy := &kvSpy{compacting: 200 * time.Millisecond}
	f := startWith(t, cfg, func(n *node.Node) member { spy.Node = n; return spy })
	_, err := f.kv.Compact(f.ctx(), &pb.CompactionRequest{Revision: 1, Physical: true})
	wantOK(t, err)
	_, err = f.kv.Compact(f.ctx(), &pb.CompactionRequest{Revision: 1})
	wantStatus(t, err, rpctypes.ErrGRPCTimeout)
	spy.compacting = time.Hour
	ctx, cancel := context.WithTimeout(f.ctx(), 50*time.Millisecond)
	defer cancel()
	_, err = f.kv.Compact(ctx, &pb.CompactionRequest{Revision: 1, Physical: true})
	// The client's own clock and the server's answer race.
	if status.Code(err) != codes.DeadlineExceeded {
		wantStatus(t, err, rpctypes.ErrGRPCTimeout)
	}
}

func TestCompactRefusesOldAndFutureRevisions(t *testing.T) {
	f := startFront(t)
	compact := func(rev int64, physical bool) (*pb.CompactionResponse, error) {
		return f.kv.Compact(f.ctx(), &pb.CompactionRequest{Revision: rev, Physical: physical})
	}
	zero, err := compact(0, false) // as in etcd before the first compaction
	wantOK(t, err)
	f.header(zero.Header, 1)
	for i := range 5 {
		f.put("a", fmt.Sprint(i))
	}
	resp, err := compact(4, true)
	wantOK(t, err)
	f.header(resp.Header, 6)
	for _, c := range []struct {
		rev  int64
		want error
	}{{4, rpctypes.ErrGRPCCompacted}, {0, rpctypes.ErrGRPCCompacted}, {-1, rpctypes.ErrGRPCCompacted}, {7, rpctypes.ErrGRPCFutureRev}} {
		for _, physical := range []bool{false, true} {
			_, err := compact(c.rev, physical)
			wantStatus(t, err, c.want)
		}
	}
	get := func(rev int64) error {
		_, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a"), Revision: rev})
		return err
	}
	wantStatus(t, get(3), rpctypes.ErrGRPCCompacted)
	wantOK(t, get(4))
	_, err = f.kv.Txn(f.ctx(), &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: []byte("a"), Revision: 3}}}}})
	wantStatus(t, err, rpctypes.ErrGRPCCompacted)
}

// FuzzTxnRequestsOverGRPC sends every decodable transaction. The server answers it, or refuses it with a named code.
func FuzzTxnRequestsOverGRPC(f *testing.F) {
	for _, r := range []*pb.TxnRequest{
		{}, {Compare: []*pb.Compare{absent("a")}, Success: []*pb.RequestOp{opPut("a", "1"), opGet("a")}},
		{Success: []*pb.RequestOp{opTxn(&pb.TxnRequest{Failure: []*pb.RequestOp{opDelete("a", "\x00")}}), {}}},
		{Compare: []*pb.Compare{{Target: 9, Result: -1, Key: []byte("a"), RangeEnd: []byte{0}}}},
	} {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	front := startFront(f)
	k := front.server.etcd.KV()
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(pb.TxnRequest)
		if proto.Unmarshal(data, r) != nil {
			return
		}
		before := front.node.Header().Revision
		resp, err := k.Txn(limited(t, context.Background()), r)
		after := front.node.Header().Revision
		if err != nil {
			if status.Code(front.server.toStatus(t.Context(), pb.KV_Txn_FullMethodName, err)) == codes.Internal {
				t.Fatalf("%v: %v", r, err)
			}
			if after != before {
				t.Fatalf("%v failed with %v and changed something", r, err)
			}
			return
		}
		if after < before || after > before+1 || resp.Header.Revision != after {
			t.Fatalf("%v took the revision from %d to %d and answered %d", r, before, after, resp.Header.Revision)
		}
		if err := keyspace.CheckTxn(etcdapi.TxnRequest(r), DefaultMaxTxnOps); err != nil {
			t.Fatalf("%v was carried out, but: %v", r, err)
		}
		if _, err := proto.Marshal(resp); err != nil {
			t.Fatal(err)
		}
	})
}
