package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

func TestPutAndRange(t *testing.T) {
	f := startFront(t)
	f.header(f.put("a", "1").Header, 2)
	lease := f.grant(60, 7)
	resp, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a"), Value: []byte("2"), Lease: lease.ID, PrevKv: true})
	wantOK(t, err)
	f.header(resp.Header, 3)
	wantEqual(t, "previous value", string(resp.PrevKv.GetValue()), "1")
	f.put("b", "")

	all, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}, Limit: 1})
	wantOK(t, err)
	f.header(all.Header, 4)
	wantEqual(t, "count", all.Count, 2)
	wantEqual(t, "more", all.More, true)
	wantEqual(t, "number of keys", len(all.Kvs), 1)
	kv := all.Kvs[0]
	got := fmt.Sprint(string(kv.Key), string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
	wantEqual(t, "key", got, fmt.Sprint("a", "2", 2, 3, 2, 7))

	old, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a"), Revision: 2, Serializable: true})
	wantOK(t, err)
	f.header(old.Header, 4)
	wantEqual(t, "old value", string(old.Kvs[0].Value), "1")
}

func TestRangeHonoursAllOptions(t *testing.T) {
	f := startFront(t)
	for _, key := range []string{"a", "b", "c"} {
		f.put(key, "v"+key)
	}
	f.put("a", "later")
	base := pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}
	for name, c := range map[string]struct {
		change func(*pb.RangeRequest)
		keys   string
	}{
		"descending":     {func(r *pb.RangeRequest) { r.SortOrder = pb.RangeRequest_DESCEND }, "cba"},
		"by mod":         {func(r *pb.RangeRequest) { r.SortTarget = pb.RangeRequest_MOD }, "bca"},
		"by create":      {func(r *pb.RangeRequest) { r.SortTarget = pb.RangeRequest_CREATE }, "abc"},
		"by version":     {func(r *pb.RangeRequest) { r.SortTarget, r.SortOrder = pb.RangeRequest_VERSION, pb.RangeRequest_DESCEND }, "abc"},
		"by value":       {func(r *pb.RangeRequest) { r.SortTarget = pb.RangeRequest_VALUE }, "abc"},
		"min mod":        {func(r *pb.RangeRequest) { r.MinModRevision = 4 }, "ac"},
		"max mod":        {func(r *pb.RangeRequest) { r.MaxModRevision = 3 }, "b"},
		"min create":     {func(r *pb.RangeRequest) { r.MinCreateRevision = 3 }, "bc"},
		"max create":     {func(r *pb.RangeRequest) { r.MaxCreateRevision = 3 }, "ab"},
		"count only":     {func(r *pb.RangeRequest) { r.CountOnly = true }, ""},
		"at a revision":  {func(r *pb.RangeRequest) { r.Revision = 3 }, "ab"},
		"negative limit": {func(r *pb.RangeRequest) { r.Limit = -1 }, "abc"},
	} {
		r := proto.Clone(&base).(*pb.RangeRequest)
		c.change(r)
		resp, err := f.kv.Range(f.ctx(), r)
		wantOK(t, err)
		keys := ""
		for _, kv := range resp.Kvs {
			keys += string(kv.Key)
		}
		wantEqual(t, name, keys, c.keys)
	}
	resp, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("b"), KeysOnly: true})
	wantOK(t, err)
	wantEqual(t, "value with keys only", len(resp.Kvs[0].Value), 0)
}

func TestDeleteRangeDeletesAnInterval(t *testing.T) {
	f := startFront(t)
	f.put("a", "1")
	f.put("b", "2")
	none, err := f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("x")})
	wantOK(t, err)
	f.header(none.Header, 3)
	wantEqual(t, "deleted", none.Deleted, 0)
	both, err := f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("c"), PrevKv: true})
	wantOK(t, err)
	f.header(both.Header, 4)
	wantEqual(t, "deleted", both.Deleted, 2)
	wantEqual(t, "previous", string(both.PrevKvs[0].Value)+string(both.PrevKvs[1].Value), "12")
}

func TestMalformedKVRequestsAreRefused(t *testing.T) {
	f := startFront(t)
	put := func(r *pb.PutRequest) error { _, err := f.kv.Put(f.ctx(), r); return err }
	get := func(r *pb.RangeRequest) error { _, err := f.kv.Range(f.ctx(), r); return err }
	key := []byte("a")
	_, noKey := f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{RangeEnd: key})
	for _, c := range []struct{ got, want error }{
		{put(&pb.PutRequest{Value: key}), rpctypes.ErrGRPCEmptyKey},
		{put(&pb.PutRequest{Key: key, Value: key, IgnoreValue: true}), rpctypes.ErrGRPCValueProvided},
		{put(&pb.PutRequest{Key: key, Lease: 1, IgnoreLease: true}), rpctypes.ErrGRPCLeaseProvided},
		{put(&pb.PutRequest{Key: key, IgnoreLease: true}), rpctypes.ErrGRPCKeyNotFound},
		{put(&pb.PutRequest{Key: key, IgnoreValue: true}), rpctypes.ErrGRPCKeyNotFound},
		{put(&pb.PutRequest{Key: key, Lease: 99}), rpctypes.ErrGRPCLeaseNotFound},
		{get(&pb.RangeRequest{}), rpctypes.ErrGRPCEmptyKey},
		{get(&pb.RangeRequest{Key: key, SortOrder: 3}), rpctypes.ErrGRPCInvalidSortOption},
		{get(&pb.RangeRequest{Key: key, SortTarget: -1}), rpctypes.ErrGRPCInvalidSortOption},
		{get(&pb.RangeRequest{Key: key, Revision: 2}), rpctypes.ErrGRPCFutureRev},
		{noKey, rpctypes.ErrGRPCEmptyKey},
	} {
		wantStatus(t, c.got, c.want)
	}
	wantEqual(t, "revision after nothing but refusals", f.node.Header().Revision, 1)
}

func TestTooLargeWritesAreRefused(t *testing.T) {
	f := startFront(t)
	put := func(size int) error {
		_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a"), Value: bytes.Repeat([]byte("x"), size)})
		return err
	}
	wantOK(t, put(DefaultMaxRequestBytes-100))
	wantStatus(t, put(DefaultMaxRequestBytes), rpctypes.ErrGRPCRequestTooLarge)
	// requestOverhead leaves room for etcd's text. Above that, gRPC itself refuses.
	wantStatus(t, put(DefaultMaxRequestBytes+requestOverhead-100), rpctypes.ErrGRPCRequestTooLarge)
	wantCode(t, put(DefaultMaxRequestBytes+requestOverhead), codes.ResourceExhausted)
}

// A request with an unknown outcome must never look like a failure of the command, whichever side gave up.
func TestUnknownOutcomeReadsAsTimeout(t *testing.T) {
	slow := func(ctx context.Context) error {
		<-ctx.Done()
		return errors.Join(replica.ErrUnknownOutcome, ctx.Err())
	}
	cfg := anyPort()
	cfg.RequestTimeout = 20 * time.Millisecond
	f := startWith(t, cfg, func(n *node.Node) member {
		return &faulty{Node: n, put: slow, ranged: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	})
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a")})
	wantStatus(t, err, rpctypes.ErrGRPCTimeout)
	_, err = f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a")})
	wantStatus(t, err, rpctypes.ErrGRPCTimeout)
}
