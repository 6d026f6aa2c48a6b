package namesapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/quota"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maxListUnowned bounds the leases in one page.
const maxListUnowned = 1000

// Quotas reads what users own. A [Member] has it.
type Quotas interface {
	// Usage returns how much a user owns.
	Usage(ctx context.Context, user string) (quota.Usage, error)
	// UnownedLeases returns a page of the leases that no user owns. After is nil for the first page.
	UnownedLeases(ctx context.Context, after *lessor.ID, limit int) (record.UnownedPage, error)
}

// SetQuota sets limits of a user, or of all users. The member checks that the user of the request has the role root.
func (n *Service) SetQuota(ctx context.Context, r *leasekeeperv1.SetQuotaRequest) (*leasekeeperv1.SetQuotaResponse, error) {
	limits := limitsOf(r.Limits)
	if len(limits) == 0 {
		return nil, fmt.Errorf("%w: no limit is given", backend.ErrInvalid)
	}
	_, err := n.cfg.Member.ChangeAccess(ctx, access.SetQuota{User: r.User, Limits: limits})
	if errors.Is(err, access.ErrUserNotFound) {
		err = noSuchUser(r.User)
	}
	return &leasekeeperv1.SetQuotaResponse{}, err
}

// noSuchUser is the error of a request that names a user which does not exist.
func noSuchUser(user string) error {
	return fmt.Errorf("%w: there is no user %q", backend.ErrInvalid, user)
}

// GetQuota returns the limits of a user and what it owns. The user of the request has the role root.
func (n *Service) GetQuota(ctx context.Context, r *leasekeeperv1.GetQuotaRequest) (*leasekeeperv1.GetQuotaResponse, error) {
	usage, err := n.cfg.Member.Usage(ctx, r.User)
	if err != nil {
		return nil, err
	}
	policy, _, err := n.cfg.Rights.ReadPolicy(ctx)
	if err != nil {
		return nil, err
	}
	resp := &leasekeeperv1.GetQuotaResponse{AllUsers: wireLimits(policy.Quota()), Limits: &leasekeeperv1.Limits{}, Leases: usage.Leases, Names: usage.Names}
	if r.User != "" {
		user := policy.User(r.User)
		if user == nil {
			return nil, noSuchUser(r.User)
		}
		resp.Limits = wireLimits(user.Quota)
	}
	return resp, nil
}

// limitsOf returns the limits that a request sets.
func limitsOf(m *leasekeeperv1.Limits) (limits []access.Limit) {
	if m == nil {
		return nil
	}
	for i, most := range []*int64{m.Leases, m.Names, m.Watchers, m.RequestsPerSecond} {
		if most != nil {
			limits = append(limits, access.Limit{Resource: access.Resources[i], Most: *most})
		}
	}
	return limits
}

// wireLimits returns the limits of a quota that are not inherited.
func wireLimits(q access.Quota) *leasekeeperv1.Limits {
	m := &leasekeeperv1.Limits{}
	for i, field := range []**int64{&m.Leases, &m.Names, &m.Watchers, &m.RequestsPerSecond} {
		if most := q.Most(access.Resources[i]); most != access.Inherit {
			*field = &most
		}
	}
	return m
}

// ListUnowned returns a page of the leases that no user owns. The user of the request has the role root.
func (n *Service) ListUnowned(ctx context.Context, r *leasekeeperv1.ListUnownedRequest) (*leasekeeperv1.ListUnownedResponse, error) {
	limit := int(r.Limit)
	switch {
	case limit < 0:
		return nil, fmt.Errorf("%w: the limit %d is negative", backend.ErrInvalid, limit)
	case limit == 0 || limit > maxListUnowned:
		limit = maxListUnowned
	}
	page, err := n.cfg.Member.UnownedLeases(ctx, (*lessor.ID)(r.After), limit)
	if err != nil {
		return nil, err
	}
	resp := &leasekeeperv1.ListUnownedResponse{More: page.More, Last: int64(page.Last)}
	for _, lease := range page.Leases {
		resp.Leases = append(resp.Leases, &leasekeeperv1.UnownedLease{
			Id: int64(lease.ID), TtlMs: lease.TTL.Milliseconds(), Claimed: lease.Claimed, Name: lease.Name,
		})
	}
	return resp, nil
}
