package conformance

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

const (
	smallest = int64(-1 << 63)
	largest  = int64(1<<63 - 1)
)

// bare sends bytes as they are, for what no generated code would send.
type bare struct{}

func (bare) Name() string                  { return "proto" }
func (bare) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (bare) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (st stubs) invoke(s *server, method, request string) error {
	in, out := []byte(request), []byte(nil)
	return st.conn.Invoke(s.context(), method, &in, &out, grpc.ForceCodec(bare{}))
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, stubs := s.store(), s.stubs()
		for what, request := range map[string]string{
			"a tag without an end":      "\xff",
			"a length without an end":   "\x0a\xff",
			"less than was announced":   "\x0a\x05a",
			"a number of eleven bytes":  "\x0a\x01a\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
			"a group that has no end":   "\x0b\x0b",
			"an end that has no group":  "\x0c",
			"a wire type there is not":  "\x0e",
			"field number zero":         "\x02\x01a",
			"length beyond all bounds":  "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
			"an embedded fault, in Put": "\x0a\x01a\x12",
		} {
			for _, method := range []string{"KV/Range", "KV/Put", "Lease/LeaseGrant", "Maintenance/Alarm", "Cluster/MemberList"} {
				err := stubs.invoke(s, "/etcdserverpb."+method, request)
				wantEqual(t, method+": "+what, codeOf(err), codes.Internal)
			}
		}
		for what, request := range map[string]string{
			"unknown fields":             "\x0a\x01a\xfa\x3f\x03xyz\xe0\x3f\x07",
			"the last of two counts":     "\x0a\x01b\x0a\x01a",
			"a number written too long":  "\x0a\x01a\x18\x80\x80\x80\x80\x00",
			"minus one":                  "\x0a\x01a\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
			"a true that is two":         "\x0a\x01a\x38\x02",
			"a known field, other shape": "\x0a\x01a\x1a\x03xyz",
		} {
			wantOK(t, what, stubs.invoke(s, "/etcdserverpb.KV/Range", request))
		}
		wantEqual(t, "no such method", codeOf(stubs.invoke(s, "/etcdserverpb.KV/Nothing", "")), codes.Unimplemented)
		wantEqual(t, "no such service", codeOf(stubs.invoke(s, "/nothing.KV/Range", "")), codes.Unimplemented)
		wantEqual(t, "no write", st.revision(), 1)
	})
}

func TestNumbersAtTheEdge(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, stubs := s.store(), s.stubs()
		st.put("a", "1") // 2
		for _, n := range []int64{smallest, -1} {
			resp, err := stubs.Range(s.context(), &pb.RangeRequest{
				Key: []byte("a"), RangeEnd: []byte("z"), Limit: n, Revision: n, MinModRevision: n, MinCreateRevision: n})
			wantOK(t, "range", err)
			wantEqual(t, "range", show(resp.Kvs...), "a=1 c2 m2 v1")
		}
		resp, err := stubs.Range(s.context(), &pb.RangeRequest{
			Key: []byte("a"), RangeEnd: []byte("z"), Limit: largest, MaxModRevision: largest, MaxCreateRevision: largest})
		wantOK(t, "range", err)
		wantEqual(t, "range", show(resp.Kvs...), "a=1 c2 m2 v1")
		wantEqual(t, "more", resp.More, false)

		for _, id := range []int64{smallest, -1, largest} {
			_, err := stubs.Put(s.context(), &pb.PutRequest{Key: []byte("b"), Lease: id})
			wantStatus(t, "put with an unknown lease", err, codes.NotFound, textLeaseNotFound)
			granted, err := stubs.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: 9_000_000_000, ID: id})
			wantOK(t, "grant", err)
			wantEqual(t, "granted id", granted.ID, id)
			wantEqual(t, "granted ttl", granted.TTL, 9_000_000_000)
			_, err = stubs.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: 60, ID: id})
			wantStatus(t, "grant again", err, codes.FailedPrecondition, "etcdserver: lease already exists")
			st.put("b", "", clientv3.WithLease(clientv3.LeaseID(id)))
			wantEqual(t, "attached", st.get("b").Kvs[0].Lease, id)
			k := s.keepAlive()
			k.send(id)
			k.receive(id, 9_000_000_000)
			st.revoke(clientv3.LeaseID(id))
		}
		for _, ttl := range []int64{9_000_000_001, largest} {
			_, err := stubs.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: ttl})
			wantStatus(t, "grant", err, codes.OutOfRange, "etcdserver: too large lease TTL")
		}
		granted, err := stubs.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: smallest})
		wantOK(t, "grant", err)
		if granted.TTL < 1 || granted.TTL > 5 {
			t.Errorf("granted %d s for the least there is", granted.TTL)
		}
	})
}

// Keys and values are bytes, in any encoding or none.
func TestKeysAndValuesMayBeAnyBytes(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		odd := []string{"\x00\x00", "\x80", "\xc3\x28", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80", "\xff\xfe"}
		lease := st.grant(600).ID
		w := s.watch()
		watcher := w.watchKey("\x00", "\x00", 2)
		var events []string
		for i, k := range odd {
			st.put(k, k, clientv3.WithLease(lease))
			events = append(events, fmt.Sprintf("PUT %[1]s=%[1]s c%[2]d m%[2]d v1 lease %[3]x", k, i+2, int64(lease)))
		}
		wantEqual(t, "watched", w.eventsUntil(int64(len(odd) + 1))[watcher], lines(events...))
		for _, k := range odd {
			resp := st.get(k, clientv3.WithPrefix())
			if len(resp.Kvs) != 1 || string(resp.Kvs[0].Key) != k || string(resp.Kvs[0].Value) != k {
				t.Errorf("%q: got %v", k, resp.Kvs)
			}
		}
		wantEqual(t, "deleted", st.delete("\x80", clientv3.WithFromKey()).Deleted, 5)
		st.revoke(lease)
		wantEqual(t, "left", st.all(), "")
	})
}

func TestUnknownEnumValues(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, stubs := s.store(), s.stubs()
		for _, n := range []int32{-1, 9, 1<<31 - 1} {
			_, err := stubs.Range(s.context(), &pb.RangeRequest{Key: []byte("a"), SortOrder: pb.RangeRequest_SortOrder(n)})
			wantStatus(t, "sort order", err, codes.InvalidArgument, "etcdserver: invalid sort option")
			_, err = stubs.Range(s.context(), &pb.RangeRequest{Key: []byte("a"), SortTarget: pb.RangeRequest_SortTarget(n)})
			wantStatus(t, "sort target", err, codes.InvalidArgument, "etcdserver: invalid sort option")
		}
		w := s.watch()
		id := w.create(&pb.WatchCreateRequest{Key: []byte("a"), Filters: []pb.WatchCreateRequest_FilterType{7, -1}}).WatchId
		st.put("a", "1") // 2
		wantEqual(t, "an unknown filter filters nothing", w.eventsUntil(2)[id], "PUT a=1 c2 m2 v1")
		if s.target != etcd { // which it kills
			_, err := stubs.Alarm(s.context(), &pb.AlarmRequest{Action: 77})
			wantEqual(t, "alarm action", codeOf(err), codes.InvalidArgument)
		}
		resp, err := stubs.Alarm(s.context(), &pb.AlarmRequest{Alarm: 77})
		wantOK(t, "alarm kind", err)
		wantEqual(t, "alarms", len(resp.Alarms), 0)
		wantEqual(t, "revision", st.revision(), 2)
	})
}

func TestWatchRequestsWithUnknownFields(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		// None of these is answered.
		w.send(&pb.WatchRequest{})
		w.cancel(0)
		w.cancel(-1)
		w.cancel(smallest)
		w.cancel(largest)
		resp := w.create(&pb.WatchCreateRequest{})
		wantEqual(t, "no key: the smallest one", resp.Canceled, false)
		for _, id := range []int64{smallest, -1, largest} {
			resp := w.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: id, StartRevision: largest})
			wantEqual(t, "id", resp.WatchId, id)
			wantEqual(t, "canceled", resp.Canceled, false)
			w.cancel(id)
			resp = w.next()
			wantEqual(t, "canceled", resp.Canceled, true)
			wantEqual(t, "canceled id", resp.WatchId, id)
		}
		refused := w.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: smallest})
		wantEqual(t, "reason", refused.CancelReason, textCompacted)
		st.put("a", "1")    // 2
		st.put("\x00", "1") // 3
		events := w.eventsUntil(3)
		wantEqual(t, "watchers with events", len(events), 1)
		wantEqual(t, "events", events[resp.WatchId], "PUT \x00=1 c3 m3 v1")
	})
}

// A compare whose number belongs to another target, or that has none, compares
// with zero; one with an unknown result always holds, and one with an unknown
// target finds all equal.
func TestComparesWithForeignNumbersCompareWithZero(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1") // 2
		a := []byte("a")
		other := &pb.Compare_Lease{Lease: 2}
		for _, c := range []struct {
			what string
			c    *pb.Compare
			want bool
		}{
			{"no number", &pb.Compare{Target: pb.Compare_MOD, Key: a, Result: pb.Compare_GREATER}, true},
			{"no number", &pb.Compare{Target: pb.Compare_MOD, Key: a}, false},
			{"no number, no key there", &pb.Compare{Target: pb.Compare_VERSION, Key: []byte("x")}, true},
			{"another's number", &pb.Compare{Target: pb.Compare_MOD, Key: a, TargetUnion: other}, false},
			{"another's number", &pb.Compare{Target: pb.Compare_MOD, Key: a, TargetUnion: other, Result: pb.Compare_GREATER}, true},
			{"no value is an empty one", &pb.Compare{Target: pb.Compare_VALUE, Key: a}, false},
			{"no value is an empty one", &pb.Compare{Target: pb.Compare_VALUE, Key: a, Result: pb.Compare_GREATER}, true},
			{"unknown result", &pb.Compare{Target: pb.Compare_MOD, Key: a, Result: 9}, true},
			{"unknown result", &pb.Compare{Target: pb.Compare_MOD, Key: []byte("x"), Result: -1}, true},
			{"unknown result of a value that is not there", &pb.Compare{Target: pb.Compare_VALUE, Key: []byte("x"), Result: 9}, false},
			{"unknown target", &pb.Compare{Target: 9, Key: a, TargetUnion: other}, true},
			{"unknown target", &pb.Compare{Target: -1, Key: a, TargetUnion: other, Result: pb.Compare_GREATER}, false},
			{"unknown target", &pb.Compare{Target: 9, Key: a, TargetUnion: other, Result: pb.Compare_NOT_EQUAL}, false},
		} {
			st.wantCompare(c.what, c.c, c.want)
		}
	})
}

// Outside a txn a negative revision is the current one, and on etcd 3.7.3 it is
// so inside too. Later etcd takes it for compacted there; leasekeeper may do as
// either of them does.
func TestNegativeRevisionInATxn(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		st.put("a", "1") // 2
		resp, err := kv.Txn(s.context(), then(opPut("b", ""), opRangeRequest(&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), Revision: -1})))
		if s.ours() && err != nil {
			wantStatus(t, "refused", err, codes.OutOfRange, textCompacted)
			wantEqual(t, "as a whole", st.revision(), 2)
			return
		}
		wantOK(t, "txn", err)
		wantEqual(t, "the current revision", showTxn(resp), "then [put; 2: a=1 c2 m2 v1, b= c3 m3 v1]")
	})
}
