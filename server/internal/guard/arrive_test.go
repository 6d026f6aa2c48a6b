package guard

import (
	"context"
	"errors"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// arrival is a request in a test of turns.
type arrival struct {
	user   string // "" for a client without a user, "gone" for one whose user does not exist
	forged bool   // the token is invalid
	method string
	peer   bool   // another member forwards it
	says   string // the identity in its metadata: of the forwarding member, or of a client that pretends
}

// context returns the context with which the request reaches the guard.
func (a arrival) context() context.Context {
	ctx := context.Background()
	switch {
	case a.forged:
		ctx = forged()
	case a.user != "":
		ctx = as(a.user)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	ctx = metadata.NewIncomingContext(ctx, metadata.Join(md, admission.Identity(a.says).Metadata()))
	if a.peer {
		ctx = admission.MarkPeerRequest(ctx)
	}
	return ctx
}

// turn is the model: it returns the client or the user in whose turn the request is carried out.
func (a arrival) turn(enabled bool) admission.Identity {
	switch {
	case a.peer:
		return admission.Identity(a.says)
	case enabled && !a.forged && (a.user == "u" || a.user == "v" || a.user == access.Root):
		return admission.Identity("user " + a.user)
	}
	return "" // without a connection there is no address
}

// arrivals yields every request of the test.
func arrivals(yield func(arrival) bool) {
	for _, user := range []string{"", "u", "v", access.Root, "gone"} {
		for _, method := range []string{
			pb.KV_Put_FullMethodName, pb.Watch_Watch_FullMethodName, leasekeeperv1.Leasekeeper_Acquire_FullMethodName,
			pb.Lease_LeaseKeepAlive_FullMethodName, leasekeeperv1.Leasekeeper_Release_FullMethodName,
		} {
			for _, says := range []string{"user u", "user v", "10.0.0.1"} {
				for _, peer := range []bool{false, true} {
					if !yield(arrival{user, false, method, peer, says}) || !yield(arrival{user, true, method, peer, says}) {
						return
					}
				}
			}
		}
	}
}

// TestTurnsFollowTheUser compares whose turn each request has, and whether it counts, with a dumb model. The user v may send no
// request, and the others any number, so that no clock decides.
func TestTurnsFollowTheUser(t *testing.T) {
	g, m := newGuard(t, nil)
	limited := []access.Limit{{Resource: access.Requests, Most: 0}}
	on := apply(t, m.policy, access.AddUser{Name: "v"}, access.SetQuota{User: "v", Limits: limited}, access.SetQuota{User: access.Root, Limits: limited})
	off := apply(t, on, access.Disable{})
	for a := range arrivals {
		for policy, enabled := range map[*access.Policy]bool{on: true, off: false} {
			m.policy = policy
			ctx, err := g.Arrive(a.context(), a.method)
			if got := admission.IdentityOf(ctx); got != a.turn(enabled) {
				t.Errorf("%+v, access enabled: %v: the turn is of %q, want %q", a, enabled, got, a.turn(enabled))
			}
			renews := a.method == pb.Lease_LeaseKeepAlive_FullMethodName || a.method == leasekeeperv1.Leasekeeper_Release_FullMethodName
			refused := enabled && !a.peer && !a.forged && a.user == "v" && !renews
			if errors.Is(err, access.ErrQuota) != refused || err != nil && !refused {
				t.Errorf("%+v, access enabled: %v: %v, to be refused: %v", a, enabled, err, refused)
			}
		}
	}
}

// Of all methods, exactly these let a request through whose user may send no further one.
func TestRenewalsAndReleasesPassWithoutAQuota(t *testing.T) {
	free := []string{
		pb.Lease_LeaseKeepAlive_FullMethodName, pb.Lease_LeaseRevoke_FullMethodName,
		v3lockpb.Lock_Unlock_FullMethodName, v3electionpb.Election_Resign_FullMethodName,
		leasekeeperv1.Leasekeeper_Hold_FullMethodName, leasekeeperv1.Leasekeeper_Renew_FullMethodName,
		leasekeeperv1.Leasekeeper_Release_FullMethodName, leasekeeperv1.Leasekeeper_Finish_FullMethodName,
	}
	g, m := newGuard(t, nil)
	m.policy = apply(t, m.policy, access.SetQuota{User: "u", Limits: []access.Limit{{Resource: access.Requests, Most: 0}}})
	for method := range methods {
		want := access.ErrQuota
		if slices.Contains(free, method) {
			want = nil
		}
		_, err := g.Arrive(as("u"), method)
		wantError(t, method, err, want)
	}
}

// A user within its quota of requests is served.
func TestRequestsWithinTheQuotaPass(t *testing.T) {
	g, m := newGuard(t, nil)
	m.policy = apply(t, m.policy, access.SetQuota{Limits: []access.Limit{{Resource: access.Requests, Most: 1000}}})
	_, err := g.Arrive(as("u"), pb.KV_Put_FullMethodName)
	wantError(t, "the first request", err, nil)
	wantError(t, "a claim", g.CountClaim(as("u")), nil)
}

// A stream belongs to the first user that it is known to be of, and to nobody before. What is wrong with a request's token is
// said to the leader.
func TestStreamOfNobodyIsNotPinned(t *testing.T) {
	g, _ := newGuard(t, nil)
	ctx := admission.WithPin(context.Background())
	if c, err := g.Caller(ctx); err != nil || c != (access.Caller{}) {
		t.Errorf("%+v, %v", c, err)
	}
	if user, ok := admission.PinOf(ctx).User(); ok {
		t.Errorf("the stream is of %q", user)
	}
	sent, _ := metadata.FromOutgoingContext(g.Forward(forged()))
	finding, _, err := admission.SaidCaller(metadata.NewIncomingContext(context.Background(), sent))
	if finding != admission.Invalid || err != nil {
		t.Errorf("of an invalid token is said %v, %v", finding, err)
	}
}

// A user that was identified at the arrival is not identified again, unless the policy has changed meanwhile.
func TestArrivalIsRememberedForOnePolicy(t *testing.T) {
	g, m := newGuard(t, nil)
	known := access.Caller{User: "u", Revision: 7}
	ctx := context.WithValue(context.Background(), foundKey{}, found{m.policy, known})
	if c, err := g.Caller(ctx); err != nil || c != known {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := g.Caller(context.WithValue(as("pinned"), foundKey{}, found{m.policy, known})); err != nil || c.User != "pinned" {
		t.Errorf("a stream is of %+v, %v", c, err)
	}
	m.policy = apply(t, m.policy, access.AddUser{Name: "w"})
	if c, err := g.Caller(ctx); err != nil || c != (access.Caller{}) {
		t.Errorf("by a changed policy: %+v, %v", c, err)
	}
}

// Claims on streams, and watchers, count for the user of the stream.
func TestClaimsAndWatchersOfStreamsCount(t *testing.T) {
	g, m := newGuard(t, nil)
	none := []access.Limit{{Resource: access.Requests, Most: 0}, {Resource: access.Watchers, Most: 1}}
	enabled := apply(t, m.policy, access.SetQuota{Limits: none})
	off := apply(t, enabled, access.Disable{})
	for what, c := range map[string]struct {
		ctx    context.Context
		policy *access.Policy
		claim  error
		second error // of the second watcher on the stream
	}{
		"a user":             {as("u"), enabled, access.ErrQuota, access.ErrQuota},
		"root":               {as(access.Root), enabled, nil, nil},
		"nobody":             {context.Background(), enabled, nil, nil},
		"access not enabled": {as("u"), off, nil, nil},
	} {
		m.policy = c.policy
		wantError(t, what+" claims", g.CountClaim(c.ctx), c.claim)
		watchers, leave := admission.NewWatchers(10).Join(c.ctx)
		watchers.Admit()
		wantError(t, what+" watches", g.CountWatcher(c.ctx, watchers), nil)
		watchers.Admit()
		wantError(t, what+" watches twice", g.CountWatcher(c.ctx, watchers), c.second)
		leave()
	}
	m.policy = enabled
	wantError(t, "a claim with an invalid token", g.CountClaim(forged()), nil)
	watchers, leave := admission.NewWatchers(10).Join(forged())
	defer leave()
	if err := g.CountWatcher(forged(), watchers); err == nil {
		t.Error("a watcher with an invalid token is counted")
	}
	m.policy = apply(t, enabled, access.SetQuota{Limits: []access.Limit{{Resource: access.Watchers, Most: access.Unlimited}}})
	for range 5 {
		watchers.Admit()
		wantError(t, "a watcher without a limit", g.CountWatcher(as("u"), watchers), nil)
	}
}
