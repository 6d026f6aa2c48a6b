package remote

import (
	"context"

	"github.com/leasekeeper/leasekeeper/driver"
)

// LeaseIDOf is the id of the lease that a claim makes.
var LeaseIDOf = leaseID

// AwaitAnew is Await when the stream has broken.
func AwaitAnew(b *Backend, ctx context.Context, l driver.Lease) (driver.Grant, error) {
	if t := l.(*lease).turn.Swap(nil); t != nil {
		t.cancel(errReplaced)
	}
	return b.Await(ctx, l)
}
