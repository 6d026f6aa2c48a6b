package conformance

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// withCompact runs a test that needs Compact.
func withCompact(t *testing.T, test func(t *testing.T, s *server)) {
	eachTargetWith(t, test, areaCompact)
}

// compact is a compaction that has to succeed. It waits until the
// compacted revisions are removed, so that a test sees none by chance.
func (st store) compact(revision int64) {
	st.s.t.Helper()
	_, err := st.c.Compact(st.s.context(), revision, clientv3.WithCompactPhysical())
	wantOK(st.s.t, "compact", err)
}

func TestCompactErrors(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		compact := func(revision int64, physical bool) (*pb.CompactionResponse, error) {
			return kv.Compact(s.context(), &pb.CompactionRequest{Revision: revision, Physical: physical})
		}
		refused := func(revision int64, text string) {
			t.Helper()
			for _, physical := range []bool{false, true} {
				_, err := compact(revision, physical)
				wantStatus(t, "compact", err, codes.OutOfRange, text)
			}
		}
		accepted := func(revision int64, physical bool, header int64) {
			t.Helper()
			resp, err := compact(revision, physical)
			wantOK(t, "compact", err)
			wantEqual(t, "header", resp.Header.Revision, header)
			if h := resp.Header; h.ClusterId == 0 || h.MemberId == 0 || h.RaftTerm == 0 {
				t.Errorf("header is not filled: %v", h)
			}
		}
		refused(-1, textCompacted)
		refused(-1<<63, textCompacted)
		refused(2, textFutureRevision)
		accepted(0, false, 1) // compacts nothing, once
		refused(0, textCompacted)
		accepted(1, true, 1)
		refused(1, textCompacted)
		for range 5 {
			st.put("a", "") // 2 to 6
		}
		refused(7, textFutureRevision)
		refused(1<<63-1, textFutureRevision)
		accepted(3, false, 6)
		refused(3, textCompacted)
		refused(2, textCompacted)
		accepted(5, true, 6)
		accepted(6, false, 6)
		refused(6, textCompacted)
		wantEqual(t, "a compaction is no write", st.revision(), 6)
		wantEqual(t, "store", st.all(), "a= c2 m6 v5")
	})
}

func TestReadsBelowACompactionFail(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1") // 2
		st.put("b", "1") // 3
		st.put("a", "2") // 4
		st.delete("b")   // 5
		st.put("c", "1") // 6
		st.compact(5)
		check := func() {
			t.Helper()
			s.settle()
			kv := s.stubs()
			for _, req := range []*pb.RangeRequest{
				{Key: []byte("a"), Revision: 4},
				{Key: []byte("a"), Revision: 1, Serializable: true},
				{Key: []byte("a"), Revision: 2, CountOnly: true},
				{Key: []byte("a"), Revision: 3, KeysOnly: true},
				{Key: []byte("none"), Revision: 4},
			} {
				_, err := kv.Range(s.context(), req)
				wantStatus(t, "below", err, codes.OutOfRange, textCompacted)
			}
			read := func(revision int64) string {
				t.Helper()
				resp, err := kv.Range(s.context(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), Revision: revision})
				wantOK(t, "range", err)
				wantEqual(t, "header", resp.Header.Revision, 6)
				return show(resp.Kvs...)
			}
			wantEqual(t, "at the compacted revision", read(5), "a=2 c2 m4 v2")
			wantEqual(t, "above", read(6), lines("a=2 c2 m4 v2", "c=1 c6 m6 v1"))
			wantEqual(t, "now", read(0), lines("a=2 c2 m4 v2", "c=1 c6 m6 v1"))
			wantEqual(t, "negative is now", read(-1), lines("a=2 c2 m4 v2", "c=1 c6 m6 v1"))
			_, err := kv.Range(s.context(), &pb.RangeRequest{Key: []byte("a"), Revision: 7})
			wantStatus(t, "the future", err, codes.OutOfRange, textFutureRevision)
		}
		check()
		s.kill()
		s.start()
		check()
		_, err := s.stubs().Compact(s.context(), &pb.CompactionRequest{Revision: 5})
		wantStatus(t, "remembered over a restart", err, codes.OutOfRange, textCompacted)
	})
}

func TestCompactKeepsLeasesAndVersions(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := st.grant(60).ID
		st.put("a", "1", clientv3.WithLease(lease)) // 2
		st.put("b", "1", clientv3.WithLease(lease)) // 3
		st.put("b", "2", clientv3.WithLease(lease)) // 4
		st.delete("a")                              // 5
		st.compact(5)
		resp, err := st.c.TimeToLive(s.context(), lease, clientv3.WithAttachedKeys())
		wantOK(t, "time to live", err)
		wantEqual(t, "attached", len(resp.Keys), 1)
		st.put("a", "2") // 6
		wantEqual(t, "created anew", show(st.get("a").Kvs...), "a=2 c6 m6 v1")
		st.put("b", "3", clientv3.WithLease(lease)) // 7
		wantEqual(t, "versions go on", st.get("b").Kvs[0].Version, 3)
		wantEqual(t, "created", st.get("b").Kvs[0].CreateRevision, 3)
		st.compact(7)
		st.revoke(lease)
		wantEqual(t, "left", st.all(), "a=2 c6 m6 v1")
	})
}

func TestCompactAndTxnReads(t *testing.T) {
	eachTargetWith(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		for range 4 {
			st.put("a", "") // 2 to 5
		}
		st.compact(4)
		at := func(revision int64) *pb.RequestOp {
			return opRangeRequest(&pb.RangeRequest{Key: []byte("a"), Revision: revision})
		}
		for _, req := range []*pb.TxnRequest{
			then(at(3)), then(opPut("b", ""), at(3)), then(opPut("b", ""), opTxn(then(at(1)))),
		} {
			_, err := kv.Txn(s.context(), req)
			wantStatus(t, "below", err, codes.OutOfRange, textCompacted)
		}
		wantEqual(t, "at the compacted revision", showTxn(st.txn(then(at(4), at(5)))), "then [1: a= c2 m4 v3; 1: a= c2 m5 v4]")
		wantEqual(t, "a compacted one not taken", showTxn(st.txn(when(isThere("a"), nil, ops(at(1))))), "then []")
		wantEqual(t, "refused as a whole", st.revision(), 5)
	}, areaCompact, areaTxn)
}

func TestEtcdctlCompaction(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		for _, v := range []string{"1", "2", "3", "4"} {
			s.mustCtl("put", "a", v) // 2 to 5
		}
		s.wantCtl("compacted revision 3\n", "compaction", "3")
		s.wantCtlError(1, textCompacted, "get", "a", "--rev", "2")
		s.wantCtl("a\n2\n", "get", "a", "--rev", "3")
		s.wantCtlError(1, textCompacted, "compaction", "3")
		s.wantCtlError(1, textFutureRevision, "compaction", "6")
		s.wantCtl("compacted revision 5\n", "compaction", "--physical", "5")
		s.wantCtlError(1, textCompacted, "compaction", "--physical", "4")
		w := s.startCtl("watch", "a", "--rev", "2")
		w.wantEnd(5)
		wantEqual(t, "watching what is gone", w.lastError(), "Error: watch is canceled by the server")
	})
}
