package remote

import (
	"context"

	"github.com/leasekeeper/leasekeeper/driver"
	"github.com/leasekeeper/leasekeeper/internal/ways"
)

// LeaseIDOf is the id of the lease that a claim makes.
var LeaseIDOf = ways.LeaseID

// AwaitAnew is Await when the stream has broken.
func AwaitAnew(b *Backend, ctx context.Context, l driver.Lease) (driver.Grant, error) {
	if t := l.(*lease).turn.Swap(nil); t != nil {
		t.quit(errReplaced)
	}
	return b.Await(ctx, l)
}

// Unanswered is how many messages of renewals are waited for.
func Unanswered(b *Backend) int {
	n := 0
	for _, w := range b.ways.All() {
		w.renewals.mu.Lock()
		if s := w.renewals.present; s != nil {
			s.mu.Lock()
			n += len(s.asked)
			s.mu.Unlock()
		}
		w.renewals.mu.Unlock()
	}
	return n
}
