package conformance

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
)

// area is a part of the API that a server may not have yet.
type area string

const (
	areaTxn        area = "Txn"
	areaCompact    area = "Compact"
	areaLock       area = "Lock service"
	areaElection   area = "Election service"
	areaHash       area = "Hash"
	areaHashKV     area = "HashKV"
	areaDefragment area = "Defragment"
	areaSnapshot   area = "Snapshot"
	areaAlarm      area = "raising of alarms"
	areaReflection area = "reflection"
)

// pending lists what leasekeeper does not serve yet, with the plainest request
// of each area. Until its line is removed, leasekeeper must answer Unimplemented,
// so that a client can distinguish a missing feature from a failed request. Such a line reads, for instance:
//
//	areaTxn: func(ctx context.Context, st stubs) error {
//		_, err := st.Txn(ctx, &pb.TxnRequest{})
//		return err
//	},
//
// At present it is empty: all areas are served.
var pending = map[area]func(context.Context, stubs) error{}

// eachTargetWith is eachTarget for a test that needs these areas. On a server
// that leaves one of them out, it checks instead that the server says so.
func eachTargetWith(t *testing.T, test func(t *testing.T, s *server), areas ...area) {
	t.Helper()
	eachTarget(t, withAreas(test, areas))
}

// eachServerWith is the same for eachServer.
func eachServerWith(t *testing.T, test func(t *testing.T, s *server), areas ...area) {
	t.Helper()
	eachServer(t, withAreas(test, areas))
}

func withAreas(test func(t *testing.T, s *server), areas []area) func(t *testing.T, s *server) {
	return func(t *testing.T, s *server) {
		for _, a := range areas {
			if ask, left := pending[a]; left && s.ours() {
				if err := ask(s.context(), s.stubs()); codeOf(err) != codes.Unimplemented {
					t.Errorf("%s is listed as pending, and the answer is %v, want %v", a, err, codes.Unimplemented)
				}
				return
			}
		}
		test(t, s)
	}
}

// withTxn runs a test that needs Txn, as all of clientv3/concurrency does.
func withTxn(t *testing.T, test func(t *testing.T, s *server)) {
	eachTargetWith(t, test, areaTxn)
}
