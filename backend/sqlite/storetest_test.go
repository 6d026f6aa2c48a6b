package sqlite

import (
	"context"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/internal/storetest"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Helpers that the tests of other stores use as well.
var (
	record     = storetest.Record
	mustSwap   = storetest.Swap
	mustRemove = storetest.Remove
	says       = storetest.Says
	request    = storetest.Request
	take       = func(ctx context.Context, c *claim.Client, q claim.Request) (*claim.Lease, error) {
		return storetest.Take(ctx, c, q, backend.ErrUnavailable) // the file may be locked
	}
)
