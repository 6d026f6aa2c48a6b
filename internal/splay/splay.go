package splay

import (
	"time"

	"github.com/leasekeeper/leasekeeper"
)

// Rest returns when d has passed or the lease is lost.
func Rest(lease *leasekeeper.Lease, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lease.Context().Done():
		// The context also ends when the scheduler is stopped. The name stays taken all the same.
		if lease.Check() == nil {
			<-timer.C
		}
	}
}
