package conformance

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var compareResults = []pb.Compare_CompareResult{pb.Compare_EQUAL, pb.Compare_GREATER, pb.Compare_LESS, pb.Compare_NOT_EQUAL}

var numericTargets = []pb.Compare_CompareTarget{pb.Compare_VERSION, pb.Compare_CREATE, pb.Compare_MOD, pb.Compare_LEASE}

// holds returns the expected result of a compare. order compares the stored value with the given one.
func holds(result pb.Compare_CompareResult, order int) bool {
	switch result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_GREATER:
		return order > 0
	case pb.Compare_LESS:
		return order < 0
	default:
		return order != 0
	}
}

func (st store) wantCompare(what string, c *pb.Compare, want bool) {
	st.s.t.Helper()
	resp := st.txn(when(c, nil, nil))
	wantEqual(st.s.t, what+": "+c.String(), resp.Succeeded, want)
}

func TestTxnCompareNumbers(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := int64(st.grant(60).ID)
		st.put("x", "")                                               // 2
		st.put("a", "1")                                              // 3
		st.put("a", "2")                                              // 4
		st.put("a", "3", clientv3.WithLease(clientv3.LeaseID(lease))) // 5
		for _, key := range []struct {
			name   string
			stored map[pb.Compare_CompareTarget]int64
		}{
			{"a", map[pb.Compare_CompareTarget]int64{pb.Compare_VERSION: 3, pb.Compare_CREATE: 3, pb.Compare_MOD: 5, pb.Compare_LEASE: lease}},
			{"x", map[pb.Compare_CompareTarget]int64{pb.Compare_VERSION: 1, pb.Compare_CREATE: 2, pb.Compare_MOD: 2, pb.Compare_LEASE: 0}},
			// A key that is not there counts as zero.
			{"missing", nil},
		} {
			for _, target := range numericTargets {
				for _, result := range compareResults {
					stored := key.stored[target]
					for _, given := range []int64{stored - 1, stored, stored + 1, -1 << 63, 1<<63 - 1} {
						st.wantCompare(fmt.Sprintf("stored %d", stored),
							compareNumber(target, key.name, result, given), holds(result, cmp.Compare(stored, given)))
					}
				}
			}
		}
		wantEqual(t, "comparing is no write", st.revision(), 5)
	})
}

func TestTxnCompareValues(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		for key, stored := range map[string]string{"a": "b1", "empty": "", "binary": "\xff\x00"} {
			st.put(key, stored)
			for _, given := range []string{"", "\x00", "b", "b0", "b1", "b10", "b2", "\xff", "\xff\x00", "\xff\x00\x00", "\xff\xff"} {
				for _, result := range compareResults {
					st.wantCompare(fmt.Sprintf("stored %q", stored),
						compareValue(key, result, given), holds(result, strings.Compare(stored, given)))
				}
			}
		}
		// What is not there has no value, not even an empty or a different one.
		for _, result := range compareResults {
			for _, given := range []string{"", "b1"} {
				st.wantCompare("missing", compareValue("missing", result, given), false)
				st.wantCompare("empty interval", over(compareValue("m", result, given), "n"), false)
			}
		}
	})
}

func TestTxnComparesOfADeletedKeyStartOver(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")
		st.delete("a")
		for _, target := range numericTargets {
			st.wantCompare("deleted", compareNumber(target, "a", pb.Compare_EQUAL, 0), true)
		}
		st.wantCompare("deleted", compareValue("a", pb.Compare_EQUAL, "1"), false)
		st.put("a", "2") // 4
		st.wantCompare("again", compareNumber(pb.Compare_CREATE, "a", pb.Compare_EQUAL, 4), true)
		st.wantCompare("again", compareNumber(pb.Compare_VERSION, "a", pb.Compare_EQUAL, 1), true)
	})
}

func TestTxnCompareIntervals(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "x") // 2
		st.put("b", "x") // 3
		st.put("c", "y") // 4
		st.put("b", "x") // 5
		const equal, greater, less, other = pb.Compare_EQUAL, pb.Compare_GREATER, pb.Compare_LESS, pb.Compare_NOT_EQUAL
		for _, c := range []struct {
			what string
			c    *pb.Compare
			want bool
		}{
			{"all equal", over(compareValue("a", equal, "x"), "c"), true},
			{"the last one differs", over(compareValue("a", equal, "x"), "d"), false},
			{"none equal", over(compareValue("a", other, "z"), "d"), true},
			{"one is equal", over(compareValue("a", other, "y"), "d"), false},
			{"all below", over(compareNumber(pb.Compare_MOD, "a", less, 6), "d"), true},
			{"one not below", over(compareNumber(pb.Compare_MOD, "a", less, 5), "d"), false},
			{"all above", over(compareNumber(pb.Compare_CREATE, "a", greater, 1), "d"), true},
			{"one not above", over(compareNumber(pb.Compare_CREATE, "a", greater, 2), "d"), false},
			{"versions differ", over(compareNumber(pb.Compare_VERSION, "a", equal, 1), "d"), false},
			{"no lease", over(compareNumber(pb.Compare_LEASE, "a", equal, 0), "d"), true},
			{"from a key", over(compareValue("c", equal, "y"), "\x00"), true},
			{"from a key on", over(compareValue("b", equal, "y"), "\x00"), false},
			{"everything", over(compareNumber(pb.Compare_CREATE, "\x00", greater, 1), "\x00"), true},
			{"empty: as one missing key", over(compareNumber(pb.Compare_VERSION, "m", equal, 0), "n"), true},
			{"empty: nothing is above zero", over(compareNumber(pb.Compare_VERSION, "m", greater, 0), "n"), false},
			{"end before key is empty", over(compareNumber(pb.Compare_VERSION, "c", equal, 0), "a"), true},
			{"end equal to key is empty", over(compareNumber(pb.Compare_VERSION, "b", equal, 0), "b"), true},
			{"bounds that are no keys", over(compareValue("aa", equal, "x"), "bb"), true},
		} {
			st.wantCompare(c.what, c.c, c.want)
		}
	})
}

func TestTxnSeveralCompares(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")
		yes, no := isThere("a"), isMissing("a")
		for _, c := range []struct {
			compares []*pb.Compare
			want     string
		}{
			{nil, "then [1: a=1 c2 m2 v1]"},
			{[]*pb.Compare{yes}, "then [1: a=1 c2 m2 v1]"},
			{[]*pb.Compare{no}, "else [0: ]"},
			{[]*pb.Compare{yes, yes, yes}, "then [1: a=1 c2 m2 v1]"},
			{[]*pb.Compare{yes, yes, no}, "else [0: ]"},
			{[]*pb.Compare{no, yes, yes}, "else [0: ]"},
			{[]*pb.Compare{no, no}, "else [0: ]"},
		} {
			resp := st.txn(&pb.TxnRequest{Compare: c.compares, Success: ops(opRange("a", "")), Failure: ops(opRange("b", ""))})
			wantEqual(t, fmt.Sprint(c.compares), showTxn(resp), c.want)
		}
	})
}
