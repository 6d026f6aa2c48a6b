package node

import (
	"context"
	"errors"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/quota"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// maxScannedLeases bounds the records that one page of [Node.UnownedLeases] reads.
const maxScannedLeases = 10_000

// Usage returns how much a user owns, after everything that was acknowledged before.
func (n *Node) Usage(ctx context.Context, user string) (quota.Usage, error) {
	if _, err := n.readHeader(ctx, false); err != nil {
		return quota.Usage{}, err
	}
	return look(ctx, n, func(r *replica.Replica, _ clock.Instant) quota.Usage { return r.Usage(user) })
}

// UnownedLeases returns the next leases after one that no user owns, and at most limit of them. It sees everything that was
// acknowledged before. After is nil for the first page.
func (n *Node) UnownedLeases(ctx context.Context, after *lessor.ID, limit int) (page record.UnownedPage, err error) {
	if _, err := n.readHeader(ctx, false); err != nil {
		return page, err
	}
	if err := n.flush(ctx); err != nil {
		return page, err
	}
	ctx, release, err := n.use(ctx)
	if err != nil {
		return page, err
	}
	defer release()
	page, err = record.UnownedLeases(n.db, after, limit, maxScannedLeases)
	return page, errors.Join(context.Cause(ctx), err)
}
