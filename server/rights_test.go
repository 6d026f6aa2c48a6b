package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// onEachFront runs a test on a server that is alone, and on the leader and a follower of a cluster of three. All have the users
// of addUsers.
func onEachFront(t *testing.T, test func(t *testing.T, f *front)) {
	t.Run("alone", func(t *testing.T) {
		f := startWithUsers(t)
		f.addUsers()
		test(t, f)
	})
	t.Run("cluster", func(t *testing.T) {
		tr := startTrio(t, waitLimit)
		leader, follower := tr.leader()
		follower.addUsers()
		for what, m := range map[string]*trioMember{"leader": leader, "follower": follower} {
			t.Run(what, func(t *testing.T) {
				f := *m.front
				f.t = t
				test(t, &f)
			})
		}
	})
}

// newLeases returns a number of lease ids that no test has used.
func newLeases(n int64) (first int64) { return lastLease.Add(n) - n + 1 }

var lastLease atomic.Int64

func (f *front) grantRight(prefix string, rights ...leasekeeperv1.NameRight) {
	f.t.Helper()
	_, err := f.names().GrantRight(f.as("root"), &leasekeeperv1.GrantRightRequest{Role: "half", Prefix: prefix, Rights: rights})
	wantOK(f.t, err)
}

func (f *front) revokeRight(prefix string, rights ...leasekeeperv1.NameRight) {
	f.t.Helper()
	_, err := f.names().RevokeRight(f.as("root"), &leasekeeperv1.RevokeRightRequest{Role: "half", Prefix: prefix, Rights: rights})
	wantOK(f.t, err)
}

// rights returns the rights of the role half over a prefix, as a user sees them.
func (f *front) rights(user, prefix string) (rights []leasekeeperv1.NameRight) {
	f.t.Helper()
	resp, err := f.names().ListRights(f.as(user), &leasekeeperv1.ListRightsRequest{Role: "half"})
	wantOK(f.t, err)
	wantEqual(f.t, "roles", len(resp.Roles), 1)
	for _, r := range resp.Roles[0].Rights {
		if r.Prefix == prefix {
			return r.Rights
		}
	}
	return nil
}

func wantSlice[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

const (
	hold       = leasekeeperv1.NameRight_HOLD
	watch      = leasekeeperv1.NameRight_WATCH
	administer = leasekeeperv1.NameRight_ADMINISTER
)

func TestRightsAreGrantedListedAndRevoked(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		f.grantRight("jobs/", hold)
		f.grantRight("jobs/", administer)
		f.grantRight("jobs/", hold) // once more
		wantSlice(t, "rights", f.rights("alice", "jobs/"), []leasekeeperv1.NameRight{hold, administer})
		f.revokeRight("jobs/", hold, watch)
		wantSlice(t, "rights", f.rights("root", "jobs/"), []leasekeeperv1.NameRight{administer})
		_, err := f.names().RevokeRight(f.as("root"), &leasekeeperv1.RevokeRightRequest{Role: "half", Prefix: "jobs/", Rights: []leasekeeperv1.NameRight{hold}})
		wantCode(t, err, codes.FailedPrecondition)
		f.revokeRight("jobs/")
		wantEqual(t, "rights", len(f.rights("root", "jobs/")), 0)

		for user, want := range map[string]codes.Code{"": codes.Unauthenticated, "bare": codes.PermissionDenied, "alice": codes.PermissionDenied} {
			ctx := f.as(user)
			_, err := f.names().GrantRight(ctx, &leasekeeperv1.GrantRightRequest{Role: "half", Rights: []leasekeeperv1.NameRight{hold}})
			wantCode(t, err, want)
			_, err = f.names().RevokeRight(ctx, &leasekeeperv1.RevokeRightRequest{Role: "half"})
			wantCode(t, err, want)
			_, err = f.names().ListRights(ctx, &leasekeeperv1.ListRightsRequest{Role: "missing"})
			wantCode(t, err, want)
		}
		_, err = f.names().ListRights(f.as("bare"), &leasekeeperv1.ListRightsRequest{Role: "half"})
		wantCode(t, err, codes.PermissionDenied)
		all, err := f.names().ListRights(f.as("bare"), &leasekeeperv1.ListRightsRequest{})
		wantOK(t, err)
		wantEqual(t, "roles of bare", len(all.Roles), 0)
		root := f.as("root")
		for want, r := range map[codes.Code]*leasekeeperv1.GrantRightRequest{
			codes.NotFound:        {Role: "missing", Rights: []leasekeeperv1.NameRight{hold}},
			codes.InvalidArgument: {Role: "half"},
		} {
			_, err := f.names().GrantRight(root, r)
			wantCode(t, err, want)
		}
		for _, r := range []*leasekeeperv1.GrantRightRequest{
			{Role: "half", Rights: []leasekeeperv1.NameRight{9}}, {Role: "half", Rights: []leasekeeperv1.NameRight{0}},
			{Role: "half", Prefix: strings.Repeat("x", 513), Rights: []leasekeeperv1.NameRight{hold}},
		} {
			_, err := f.names().GrantRight(root, r)
			wantCode(t, err, codes.InvalidArgument)
		}
		_, err = f.names().ListRights(root, &leasekeeperv1.ListRightsRequest{Role: "missing"})
		wantCode(t, err, codes.NotFound)
	})
}

func TestRightsAreListedInPages(t *testing.T) {
	f := startWithUsers(t)
	for _, role := range []string{"c", "a", "b"} {
		_, err := f.auth.RoleAdd(f.ctx(), &pb.AuthRoleAddRequest{Name: role})
		wantOK(t, err)
	}
	var seen []string
	for after, more := "", true; more; {
		resp, err := f.names().ListRights(f.ctx(), &leasekeeperv1.ListRightsRequest{After: after, Limit: 2})
		wantOK(t, err)
		for _, r := range resp.Roles {
			seen = append(seen, r.Role)
		}
		after, more = resp.Last, resp.More
	}
	wantSlice(t, "roles", seen, []string{"a", "b", "c"})
}

func TestRightsAreGrantedAsJSON(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	resp, err := f.auth.Authenticate(f.ctx(), &pb.AuthenticateRequest{Name: "root", Password: "root"})
	wantOK(t, err)
	post := func(path, body string) map[string]any {
		t.Helper()
		req, err := http.NewRequestWithContext(f.ctx(), "POST", "http://"+f.server.HTTPAddr()+path, strings.NewReader(body))
		wantOK(t, err)
		req.Header.Set("Authorization", resp.Token)
		req.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(req)
		wantOK(t, err)
		defer answer.Body.Close()
		decoded := make(map[string]any)
		wantOK(t, json.NewDecoder(answer.Body).Decode(&decoded))
		wantEqual(t, path, answer.StatusCode, 200)
		return decoded
	}
	post("/v1/grant-right", `{"role": "half", "prefix": "jobs/", "rights": ["HOLD", "WATCH"]}`)
	wantSlice(t, "rights", f.rights("alice", "jobs/"), []leasekeeperv1.NameRight{hold, watch})
	post("/v1/revoke-right", `{"role": "half", "prefix": "jobs/", "rights": ["WATCH"]}`)
	listed := post("/v1/list-rights", `{"role": "half"}`)
	text, err := json.Marshal(listed["roles"])
	wantOK(t, err)
	wantEqual(t, "roles", string(text), `[{"rights":[{"prefix":"jobs/","rights":["HOLD"]}],"role":"half"}]`)
	http.DefaultClient.CloseIdleConnections()
}

// holderAs returns a client of Hold for a user.
func (f *front) holderAs(user string) *holdClient {
	f.t.Helper()
	return f.holderWith(f.as(user), user)
}

// holderWith opens a stream of Hold whose holder has an id.
func (f *front) holderWith(ctx context.Context, id string) *holdClient {
	f.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	f.t.Cleanup(cancel)
	stream, err := f.names().Hold(ctx)
	wantOK(f.t, err)
	c := &holdClient{f: f, stream: stream, cancel: cancel}
	c.send(&leasekeeperv1.HoldRequest{Holder: &leasekeeperv1.Holder{Id: id}})
	return c
}

// A stream of renewals outlives the withdrawal of a right. It refuses the leases of the user, each until the right is back.
func TestRenewalsInBulkAreDeniedWhileTheRightIsWithdrawn(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		lease := newLeases(3)
		f.grantRight("bulk/", hold)
		c := f.holderAs("alice")
		c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("bulk/a", lease)}})
		c.wants(1, leasekeeperv1.HoldAnswer_HELD)
		stream, err := f.names().Renew(f.as("alice"))
		wantOK(t, err)
		number := uint64(0)
		renew := func() *leasekeeperv1.RenewResponse {
			t.Helper()
			number++
			wantOK(t, stream.Send(&leasekeeperv1.RenewRequest{Number: number, Leases: []int64{lease, lease + 2}}))
			resp, err := stream.Recv()
			wantOK(t, err)
			return resp
		}
		states := func(r *leasekeeperv1.RenewResponse) (states []leasekeeperv1.RefusedRenewal_State) {
			for _, refused := range r.Refused {
				states = append(states, refused.State)
			}
			return states
		}
		wantSlice(t, "held", states(renew()), []leasekeeperv1.RefusedRenewal_State{leasekeeperv1.RefusedRenewal_GONE})
		_, err = f.auth.UserChangePassword(f.as("root"), &pb.AuthUserChangePasswordRequest{Name: "alice", Password: "alice"}) // ends her tokens
		wantOK(t, err)
		wantSlice(t, "without a valid token", states(renew()), []leasekeeperv1.RefusedRenewal_State{leasekeeperv1.RefusedRenewal_GONE})
		f.revokeRight("bulk/")
		wantSlice(t, "withdrawn", states(renew()), []leasekeeperv1.RefusedRenewal_State{leasekeeperv1.RefusedRenewal_DENIED, leasekeeperv1.RefusedRenewal_GONE})
		c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("bulk/b", lease+1)}})
		c.fails(2, codes.PermissionDenied, leasekeeperv1.ErrorReason_DENIED)
		f.grantRight("bulk/", hold)
		wantSlice(t, "given back", states(renew()), []leasekeeperv1.RefusedRenewal_State{leasekeeperv1.RefusedRenewal_GONE})
		c.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{c.release("bulk/a", lease)}})
		c.wants(3, leasekeeperv1.HoldAnswer_RELEASED)
	})
}

// The renewals of a user that was removed are refused one by one, so its client learns at once that its leases are lost.
func TestRenewalsOfARemovedUserAreDenied(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	f.grantRight("jobs/", hold)
	c := f.holderAs("alice")
	c.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{c.claim("jobs/a", 71)}})
	c.wants(1, leasekeeperv1.HoldAnswer_HELD)
	stream, err := f.names().Renew(f.as("alice"))
	wantOK(t, err)
	wantOK(t, stream.Send(&leasekeeperv1.RenewRequest{Number: 1, Leases: []int64{71}}))
	resp, err := stream.Recv()
	wantOK(t, err)
	wantEqual(t, "refused", len(resp.Refused), 0)
	_, err = f.auth.UserDelete(f.as("root"), &pb.AuthUserDeleteRequest{Name: "alice"})
	wantOK(t, err)
	wantOK(t, stream.Send(&leasekeeperv1.RenewRequest{Number: 2, Leases: []int64{71}}))
	resp, err = stream.Recv()
	wantOK(t, err)
	wantEqual(t, "refused", resp.Refused[0].State, leasekeeperv1.RefusedRenewal_DENIED)
}

// A waiting claim whose user has lost the right to hold is refused at its turn, and the next one in the queue holds the name.
func TestWaiterWithoutTheRightIsPassedOver(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		lease := newLeases(6)
		f.grantRight("queue/", hold)
		root, alice, last := f.holderAs("root"), f.holderAs("alice"), f.holderAs("root")
		root.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{root.claim("queue/a", lease), root.claim("queue/b", lease+1)}})
		root.wants(1, leasekeeperv1.HoldAnswer_HELD)
		root.wants(2, leasekeeperv1.HoldAnswer_HELD)
		alice.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{alice.claim("queue/a", lease+2)}})
		alice.wants(1, leasekeeperv1.HoldAnswer_WAITING)
		single, err := f.names().Acquire(f.as("alice"), &leasekeeperv1.AcquireRequest{Name: "queue/b", Lease: lease + 3, TtlMs: 60_000, Wait: true, Holder: &leasekeeperv1.Holder{Id: "alice"}})
		wantOK(t, err)
		resp, err := single.Recv()
		wantOK(t, err)
		wantEqual(t, "state", resp.State, leasekeeperv1.AcquireResponse_WAITING)
		last.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{last.claim("queue/a", lease+4), last.claim("queue/b", lease+5)}})
		last.wants(1, leasekeeperv1.HoldAnswer_WAITING)
		last.wants(2, leasekeeperv1.HoldAnswer_WAITING)

		f.revokeRight("queue/")
		root.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{root.release("queue/a", lease)}})
		root.wants(3, leasekeeperv1.HoldAnswer_RELEASED)
		alice.fails(1, codes.PermissionDenied, leasekeeperv1.ErrorReason_DENIED)
		last.wants(1, leasekeeperv1.HoldAnswer_HELD)
		root.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{root.release("queue/b", lease+1)}})
		root.wants(4, leasekeeperv1.HoldAnswer_RELEASED)
		_, err = single.Recv()
		wantCode(t, err, codes.PermissionDenied)
		wantEqual(t, "reason", reasonIn(err), "DENIED")
		last.wants(2, leasekeeperv1.HoldAnswer_HELD)
		last.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{last.release("queue/a", lease+4), last.release("queue/b", lease+5)}})
		last.wants(3, leasekeeperv1.HoldAnswer_RELEASED)
		last.wants(4, leasekeeperv1.HoldAnswer_RELEASED)
	})
}

// A watch of holders ends with the right to watch, before it shows a change of after that.
func TestWithdrawnRightEndsAWatchOfHolders(t *testing.T) {
	onEachFront(t, func(t *testing.T, f *front) {
		lease := newLeases(1)
		f.grantRight("seen/", watch)
		stream, err := f.names().Watch(f.as("alice"), &leasekeeperv1.WatchRequest{Prefix: "seen/"})
		wantOK(t, err)
		for synced := false; !synced; {
			resp, err := stream.Recv()
			wantOK(t, err)
			synced = resp.Synced
		}
		root := f.holderAs("root")
		root.send(&leasekeeperv1.HoldRequest{Claims: []*leasekeeperv1.HoldClaim{root.claim("seen/a", lease)}})
		root.wants(1, leasekeeperv1.HoldAnswer_HELD)
		resp, err := stream.Recv()
		wantOK(t, err)
		wantEqual(t, "events", len(resp.Events), 1)
		f.revokeRight("seen/", watch)
		root.send(&leasekeeperv1.HoldRequest{Releases: []*leasekeeperv1.HoldRelease{root.release("seen/a", lease)}})
		root.wants(2, leasekeeperv1.HoldAnswer_RELEASED)
		_, err = stream.Recv()
		wantCode(t, err, codes.PermissionDenied)
	})
}

// The errors say whether to authenticate, to repeat the request, or to give up.
func TestReasonsTellDeniedFromUnauthenticated(t *testing.T) {
	f := startWithUsers(t)
	f.addUsers()
	get := func(ctx context.Context) error {
		_, err := f.names().Get(ctx, &leasekeeperv1.GetRequest{Name: "x"})
		return err
	}
	wantEqual(t, "bare", reasonIn(get(f.as("bare"))), "DENIED")
	wantEqual(t, "nobody", reasonIn(get(f.ctx())), "UNAUTHENTICATED")
}
