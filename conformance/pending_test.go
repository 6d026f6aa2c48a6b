package conformance

import (
	"context"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
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
// of each area. Until its line is taken out, all that is asked of leasekeeper is
// to say so: Unimplemented, from which a client can tell a missing feature from
// a failed request.
var pending = map[area]func(context.Context, stubs) error{
	areaLock: func(ctx context.Context, st stubs) error {
		_, err := v3lockpb.NewLockClient(st.conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("a")})
		return err
	},
	areaElection: func(ctx context.Context, st stubs) error {
		_, err := v3electionpb.NewElectionClient(st.conn).Leader(ctx, &v3electionpb.LeaderRequest{Name: []byte("a")})
		return err
	},
	areaReflection: func(ctx context.Context, st stubs) error {
		stream, err := reflectionpb.NewServerReflectionClient(st.conn).ServerReflectionInfo(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	},
}

// eachTargetWith is eachTarget for a test that needs these areas. On a server
// that leaves one of them out, it checks instead that the server says so.
func eachTargetWith(t *testing.T, test func(t *testing.T, s *server), areas ...area) {
	eachTarget(t, func(t *testing.T, s *server) {
		for _, a := range areas {
			if ask, left := pending[a]; left && s.target == leasekeeper {
				if err := ask(s.context(), s.stubs()); codeOf(err) != codes.Unimplemented {
					t.Errorf("%s is listed as pending, and the answer is %v, want %v", a, err, codes.Unimplemented)
				}
				return
			}
		}
		test(t, s)
	})
}

// withTxn is for what stands on Txn, as all of clientv3/concurrency does.
func withTxn(t *testing.T, test func(t *testing.T, s *server)) {
	eachTargetWith(t, test, areaTxn)
}
