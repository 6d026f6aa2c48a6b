package server

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

func TestGrantRaisesShortTTLsAndRefusesLongOnes(t *testing.T) {
	f := startFront(t)
	chosen := f.grant(60, -5)
	f.header(chosen.Header, 1)
	wantEqual(t, "id and ttl", fmt.Sprint(chosen.ID, chosen.TTL), "-5 60")
	if picked := f.grant(60, 0); picked.ID == 0 {
		t.Error("the picked id is 0")
	}
	for _, asked := range []int64{0, -1, math.MinInt64, 1} {
		wantEqual(t, "clamped ttl", f.grant(asked, 0).TTL, 1)
	}
	wantEqual(t, "longest ttl", f.grant(9_000_000_000, 0).TTL, 9_000_000_000)
	for want, r := range map[error]*pb.LeaseGrantRequest{
		rpctypes.ErrGRPCLeaseExist:       {ID: -5, TTL: 60},
		rpctypes.ErrGRPCLeaseTTLTooLarge: {ID: 9, TTL: 9_000_000_001},
	} {
		_, err := f.lease.LeaseGrant(f.ctx(), r)
		wantStatus(t, err, want)
	}
	_, err := f.lease.LeaseGrant(f.ctx(), &pb.LeaseGrantRequest{TTL: math.MaxInt64})
	wantStatus(t, err, rpctypes.ErrGRPCLeaseTTLTooLarge)
}

func TestRevokeDeletesTheKeys(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	for _, key := range []string{"a", "b"} {
		_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte(key), Lease: 1})
		wantOK(t, err)
	}
	resp, err := f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: 1})
	wantOK(t, err)
	f.header(resp.Header, 4)
	left, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}})
	wantOK(t, err)
	wantEqual(t, "keys left", left.Count, 0)
	for _, id := range []int64{1, 0, 99} {
		_, err = f.lease.LeaseRevoke(f.ctx(), &pb.LeaseRevokeRequest{ID: id})
		wantStatus(t, err, rpctypes.ErrGRPCLeaseNotFound)
	}
}

func TestTimeToLiveOfLivingAndMissingLeases(t *testing.T) {
	f := startFront(t)
	f.grant(60, 1)
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a"), Lease: 1})
	wantOK(t, err)
	bare, err := f.lease.LeaseTimeToLive(f.ctx(), &pb.LeaseTimeToLiveRequest{ID: 1})
	wantOK(t, err)
	f.header(bare.Header, 2)
	if bare.TTL < 50 || bare.TTL > 59 { // part of the first second has passed, and the answer is rounded down
		t.Errorf("%d s left of 60", bare.TTL)
	}
	wantEqual(t, "granted and keys", fmt.Sprint(bare.ID, bare.GrantedTTL, bare.Keys), "1 60 []")
	keys, err := f.lease.LeaseTimeToLive(f.ctx(), &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
	wantOK(t, err)
	wantEqual(t, "keys", fmt.Sprintf("%s", keys.Keys), "[a]")
	for _, id := range []int64{0, 99} {
		gone, err := f.lease.LeaseTimeToLive(f.ctx(), &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		wantOK(t, err)
		f.header(gone.Header, 2)
		wantEqual(t, "unknown lease", fmt.Sprint(gone.ID, gone.TTL, gone.GrantedTTL, gone.Keys), fmt.Sprint(id, -1, 0, []string{}))
	}
}

func TestLeasesListsAllLeases(t *testing.T) {
	f := startFront(t)
	var want []int64
	for _, id := range []int64{30, -4, 12} {
		f.grant(100, id)
		want = append(want, id)
	}
	resp, err := f.lease.LeaseLeases(f.ctx(), &pb.LeaseLeasesRequest{})
	wantOK(t, err)
	f.header(resp.Header, 1)
	var got []int64
	for _, lease := range resp.Leases {
		got = append(got, lease.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("leases %v, want %v", got, want)
	}
}

func TestExpiredLeaseDeletesItsKeys(t *testing.T) {
	t.Parallel()
	f := startFront(t)
	before := time.Now()
	f.grant(1, 1)
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a"), Lease: 1})
	wantOK(t, err)
	eventually(t, "the key is gone with its lease", func() bool {
		resp, err := f.kv.Range(f.ctx(), &pb.RangeRequest{Key: []byte("a")})
		wantOK(t, err)
		return resp.Count == 0
	})
	if lived := time.Since(before); lived < time.Second {
		t.Errorf("a lease of 1 s ended within %v", lived)
	}
}
