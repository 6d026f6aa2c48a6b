package server

import (
	"context"
	"maps"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/access"
)

const exhausted = leasekeeperv1.ErrorReason_QUOTA_EXHAUSTED

// setQuota sets limits of a user as root; "" for all users.
func (f *front) setQuota(user string, limits *leasekeeperv1.Limits) {
	f.t.Helper()
	_, err := f.names().SetQuota(f.as("root"), &leasekeeperv1.SetQuotaRequest{User: user, Limits: limits})
	wantOK(f.t, err)
}

func (f *front) quota(user string) *leasekeeperv1.GetQuotaResponse {
	f.t.Helper()
	resp, err := f.names().GetQuota(f.as("root"), &leasekeeperv1.GetQuotaRequest{User: user})
	wantOK(f.t, err)
	return resp
}

func limit(most int64) *int64 { return &most }

// grantLease grants a lease to the user of a context.
func (f *front) grantLease(ctx context.Context) (id int64, err error) {
	resp, err := f.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: newLeases(1), TTL: 600})
	return resp.GetID(), err
}

// claimOnce claims a name for the user of a context, and returns its lease.
func (f *front) claimOnce(ctx context.Context, name string) (lease int64, err error) {
	lease = newLeases(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.names().Acquire(ctx, &leasekeeperv1.AcquireRequest{Name: name, Lease: lease, TtlMs: 600_000, Holder: &leasekeeperv1.Holder{Id: "h"}})
	wantOK(f.t, err)
	_, err = stream.Recv()
	return lease, err
}

func TestQuotasLimitLeasesAndNames(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		f.grantRight("q/", hold)
		f.setQuota("alice", &leasekeeperv1.Limits{Leases: limit(2), Names: limit(1)})
		defer f.setQuota("alice", &leasekeeperv1.Limits{Leases: limit(access.Inherit), Names: limit(access.Inherit)})
		alice := f.as("alice")
		name, err := f.claimOnce(alice, "q/a")
		wantOK(t, err)
		_, err = f.claimOnce(alice, "q/b")
		wantReason(t, err, codes.ResourceExhausted, exhausted)
		lease, err := f.grantLease(alice)
		wantOK(t, err)
		_, err = f.grantLease(alice)
		wantCode(t, err, codes.ResourceExhausted)
		if q := f.quota("alice"); q.Leases != 2 || q.Names != 1 || q.Limits.GetLeases() != 2 || q.Limits.GetNames() != 1 || q.Limits.Watchers != nil {
			t.Errorf("the quota is %v", q)
		}

		// Others are not limited, and neither are renewals and releases.
		other, err := f.grantLease(f.as("bare"))
		wantOK(t, err)
		f.setQuota("alice", &leasekeeperv1.Limits{Leases: limit(0), Names: limit(0)})
		keep, err := f.lease.LeaseKeepAlive(alice)
		wantOK(t, err)
		wantOK(t, keep.Send(&pb.LeaseKeepAliveRequest{ID: lease}))
		renewed, err := keep.Recv()
		wantOK(t, err)
		wantEqual(t, "TTL", renewed.TTL, 600)
		wantOK(t, keep.CloseSend())
		for user, ids := range map[string][]int64{"alice": {lease}, "bare": {other}} {
			for _, id := range ids {
				_, err = f.lease.LeaseRevoke(f.as(user), &pb.LeaseRevokeRequest{ID: id})
				wantOK(t, err)
			}
		}
		_, err = f.names().Release(alice, &leasekeeperv1.ReleaseRequest{Name: "q/a", Lease: name})
		wantOK(t, err)
		if q := f.quota("alice"); q.Leases != 0 || q.Names != 0 {
			t.Errorf("the quota after everything ended is %v", q)
		}
	})
}

func TestQuotaOfAllUsersHoldsForUsersWithoutTheirOwn(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	f.setQuota("", &leasekeeperv1.Limits{Leases: limit(0)})
	f.setQuota("alice", &leasekeeperv1.Limits{Leases: limit(access.Unlimited)})
	_, err := f.grantLease(f.as("bare"))
	wantCode(t, err, codes.ResourceExhausted)
	for _, user := range []string{"alice", "root"} {
		_, err = f.grantLease(f.as(user))
		wantOK(t, err)
	}
	if q := f.quota("bare"); q.Limits.Leases != nil || q.AllUsers.GetLeases() != 0 || q.AllUsers.Leases == nil {
		t.Errorf("the quota of bare is %v", q)
	}
	f.setQuota("alice", &leasekeeperv1.Limits{Leases: limit(access.Inherit)})
	_, err = f.grantLease(f.as("alice"))
	wantCode(t, err, codes.ResourceExhausted)
	for _, r := range []*leasekeeperv1.SetQuotaRequest{
		{User: "alice"}, {User: "alice", Limits: &leasekeeperv1.Limits{}}, {User: "nobody", Limits: &leasekeeperv1.Limits{Names: limit(1)}},
		{User: "alice", Limits: &leasekeeperv1.Limits{Names: limit(-3)}},
	} {
		_, err := f.names().SetQuota(f.as("root"), r)
		wantReason(t, err, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID)
	}
}

// A user that has sent as many requests as it may is refused at both fronts, while other users go on. A user without a watcher
// to spare gets one neither of keys nor of holders.
func TestQuotasLimitRequestsAndWatchers(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		f.grantRight("q/", watch)
		alice := f.as("alice")
		f.setQuota("alice", &leasekeeperv1.Limits{RequestsPerSecond: limit(0), Watchers: limit(0)})
		eventually(t, "the member knows the quota", func() bool { return f.node.Access().Most("alice", access.Requests) == 0 })
		_, err := f.kv.Range(alice, &pb.RangeRequest{Key: []byte("a")})
		wantCode(t, err, codes.ResourceExhausted)
		_, err = f.names().Get(alice, &leasekeeperv1.GetRequest{Name: "q/a"})
		wantReason(t, err, codes.ResourceExhausted, exhausted)
		_, err = f.kv.Range(f.as("root"), &pb.RangeRequest{Key: []byte("a")})
		wantOK(t, err)

		f.setQuota("alice", &leasekeeperv1.Limits{RequestsPerSecond: limit(access.Inherit)})
		eventually(t, "the member knows the quota", func() bool { return f.node.Access().Most("alice", access.Requests) < 0 })
		keys, err := f.watch.Watch(alice)
		wantOK(t, err)
		wantOK(t, keys.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}}))
		resp, err := keys.Recv()
		wantOK(t, err)
		if !resp.Canceled {
			t.Errorf("a watcher beyond the quota: %v", resp)
		}
		wantOK(t, keys.CloseSend())
		watchNames := func() error {
			ctx, cancel := context.WithCancel(alice)
			defer cancel()
			names, err := f.names().Watch(ctx, &leasekeeperv1.WatchRequest{Prefix: "q/"})
			wantOK(t, err)
			_, err = names.Recv()
			return err
		}
		wantReason(t, watchNames(), codes.ResourceExhausted, exhausted)
		f.setQuota("alice", &leasekeeperv1.Limits{Watchers: limit(access.Inherit)})
		eventually(t, "the member knows the quota", func() bool { return f.node.Access().Most("alice", access.Watchers) < 0 })
		wantOK(t, watchNames())
	})
}

// A user that may send no further request renews and releases what it has, by each method that does so. It claims nothing, on
// an open stream neither.
func TestRenewalsAndReleasesCountAgainstNoQuota(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		f.grantRight("kept/", hold)
		alice := f.as("alice")
		lease, err := f.grantLease(alice)
		wantOK(t, err)
		lock, err := f.locks().Lock(alice, &v3lockpb.LockRequest{Name: []byte("a/lock"), Lease: lease})
		wantOK(t, err)
		office, err := f.elections().Campaign(alice, &v3electionpb.CampaignRequest{Name: []byte("a/office"), Lease: lease})
		wantOK(t, err)
		claims := make(map[string]int64)
		for _, name := range []string{"kept/streamed", "kept/released", "kept/finished"} {
			claims[name], err = f.claimOnce(alice, name)
			wantOK(t, err)
		}
		f.setQuota("alice", &leasekeeperv1.Limits{RequestsPerSecond: limit(0)})
		defer f.setQuota("alice", &leasekeeperv1.Limits{RequestsPerSecond: limit(access.Inherit)})
		eventually(t, "the member knows the quota", func() bool { return f.node.Access().Most("alice", access.Requests) == 0 })
		_, err = f.grantLease(alice)
		wantCode(t, err, codes.ResourceExhausted)

		keepAlive, err := f.lease.LeaseKeepAlive(alice)
		wantOK(t, err)
		renewals, err := f.names().Renew(alice)
		wantOK(t, err)
		for number := range uint64(3) {
			wantOK(t, keepAlive.Send(&pb.LeaseKeepAliveRequest{ID: lease}))
			one, err := keepAlive.Recv()
			wantOK(t, err)
			wantEqual(t, "TTL", one.TTL, 600)
			wantOK(t, renewals.Send(&leasekeeperv1.RenewRequest{Number: number + 1, Leases: slices.Collect(maps.Values(claims))}))
			all, err := renewals.Recv()
			wantOK(t, err)
			wantEqual(t, "refused renewals", len(all.Refused), 0)
		}
		c := f.holderWith(alice, "alice")
		c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("kept/more", newLeases(1))}})
		c.fails(1, codes.ResourceExhausted, exhausted)
		c.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{c.release("kept/streamed", claims["kept/streamed"])}})
		c.wants(2, leasekeeperv1.HoldAnswer_RELEASED)
		_, err = f.names().Release(alice, &leasekeeperv1.ReleaseRequest{Name: "kept/released", Lease: claims["kept/released"]})
		wantOK(t, err)
		_, err = f.names().Finish(alice, &leasekeeperv1.FinishRequest{Name: "kept/finished", Lease: claims["kept/finished"]})
		wantOK(t, err)
		_, err = f.locks().Unlock(alice, &v3lockpb.UnlockRequest{Key: lock.Key})
		wantOK(t, err)
		_, err = f.elections().Resign(alice, &v3electionpb.ResignRequest{Leader: office.Leader})
		wantOK(t, err)
		_, err = f.lease.LeaseRevoke(alice, &pb.LeaseRevokeRequest{ID: lease})
		wantOK(t, err)
		if q := f.quota("alice"); q.Leases != 0 || q.Names != 0 {
			t.Errorf("after everything was released: %v", q)
		}
	})
}

// Leases from before access was enabled have no owner, and are listed page by page. Later leases have one.
func TestLeasesWithoutAnOwnerAreListed(t *testing.T) {
	f := startWithUsers(t)
	want := map[int64]string{}
	for range 3 {
		id, err := f.grantLease(f.ctx())
		wantOK(t, err)
		want[id] = ""
	}
	id, err := f.claimOnce(f.ctx(), "q/old")
	wantOK(t, err)
	want[id] = "q/old"
	f.addUsers()
	_, err = f.grantLease(f.as("alice"))
	wantOK(t, err)
	found := map[int64]string{}
	for req := (&leasekeeperv1.ListUnownedRequest{Limit: 2}); ; {
		page, err := f.names().ListUnowned(f.as("root"), req)
		wantOK(t, err)
		for _, l := range page.Leases {
			found[l.Id] = l.Name
			wantEqual(t, "claimed", l.Claimed, l.Name != "")
			wantEqual(t, "TTL", l.TtlMs, 600_000)
		}
		if !page.More {
			break
		}
		req.After = &page.Last
	}
	if len(found) != len(want) {
		t.Errorf("found %v, want %v", found, want)
	}
	for id, name := range want {
		if got, ok := found[id]; !ok || got != name {
			t.Errorf("lease %x: %q, %v", id, got, ok)
		}
	}
	_, err = f.names().ListUnowned(f.as("root"), &leasekeeperv1.ListUnownedRequest{Limit: -1})
	wantCode(t, err, codes.InvalidArgument)
}
