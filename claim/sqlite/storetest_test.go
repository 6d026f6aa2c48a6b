package sqlite

import (
	"context"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/internal/storetest"
	"github.com/leasekeeper/leasekeeper/driver"
)

// What the tests of other stores do as well.
var (
	record  = storetest.Record
	swap    = storetest.Swap
	remove  = storetest.Remove
	says    = storetest.Says
	request = storetest.Request
	take    = func(ctx context.Context, c *claim.Client, q claim.Request) (*claim.Lease, error) {
		return storetest.Take(ctx, c, q, driver.ErrUnavailable) // the file may be locked
	}
)
