package guard

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// uncounted are the methods that count against no quota of requests: renewals and releases, and the streams that carry
// renewals. Of such a stream each claim counts ([Guard.CountClaim]), and of a stream of watchers the stream.
var uncounted = map[string]bool{
	pb.Lease_LeaseKeepAlive_FullMethodName:           true,
	pb.Lease_LeaseRevoke_FullMethodName:              true,
	v3lockpb.Lock_Unlock_FullMethodName:              true,
	v3electionpb.Election_Resign_FullMethodName:      true,
	leasekeeperv1.Leasekeeper_Hold_FullMethodName:    true,
	leasekeeperv1.Leasekeeper_Renew_FullMethodName:   true,
	leasekeeperv1.Leasekeeper_Release_FullMethodName: true,
	leasekeeperv1.Leasekeeper_Finish_FullMethodName:  true,
}

// foundKey is the key of a found in a context.
type foundKey struct{}

// found is who the user of a request is by a policy.
type found struct {
	policy *access.Policy
	caller access.Caller
}

// Arrive finds out whose request has come from a client, and counts it. The context that it returns has the user as the
// identity of the client, with which clients take turns. The error is an [access.QuotaError]. A request without a valid user
// passes: the checks of its method refuse it, in etcd's order. The member to which the client sent a request has counted it,
// so the leader does not count it again.
func (g *Guard) Arrive(ctx context.Context, method string) (context.Context, error) {
	policy := g.Policy()
	if !policy.Enabled() || admission.FromPeer(ctx) {
		return ctx, nil
	}
	caller, err := g.Caller(ctx)
	if err != nil || policy.User(caller.User) == nil {
		return ctx, nil
	}
	ctx = context.WithValue(admission.WithUser(ctx, caller.User), foundKey{}, found{policy, caller})
	if uncounted[method] {
		return ctx, nil
	}
	return ctx, g.count(policy, caller.User)
}

// CountClaim counts a claim that came on a stream.
func (g *Guard) CountClaim(ctx context.Context) error {
	policy := g.Policy()
	if !policy.Enabled() {
		return nil
	}
	caller, err := g.Caller(ctx)
	if err != nil || caller.User == "" {
		return nil // the claim is refused when it is applied
	}
	return g.count(policy, caller.User)
}

// count counts a request of a user.
func (g *Guard) count(p *access.Policy, user string) error {
	most := p.Most(user, access.Requests)
	if most < 0 || g.rates.Take(user, most, time.Now()) {
		return nil
	}
	return &access.QuotaError{User: user, Resource: access.Requests, Most: most}
}

// CountWatcher counts the watcher that was admitted last, and those before it on the same stream, as those of the stream's
// user. With an [access.QuotaError] the caller discharges the watcher.
func (g *Guard) CountWatcher(ctx context.Context, watchers *admission.ConnectionWatchers) error {
	policy := g.Policy()
	if !policy.Enabled() {
		return nil
	}
	caller, err := g.Caller(ctx)
	if err != nil || caller.User == "" {
		return err
	}
	most := policy.Most(caller.User, access.Watchers)
	if has := watchers.Belong(caller.User); most >= 0 && has > most {
		return &access.QuotaError{User: caller.User, Resource: access.Watchers, Most: most}
	}
	return nil
}
