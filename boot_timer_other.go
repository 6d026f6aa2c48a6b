//go:build !linux

package leasekeeper

import "time"

// bootTimer works on Linux only. Elsewhere the keeper notices a deadline that passed while the machine slept at the next
// use of the lease, or when Go's timer fires.
type bootTimer struct{ fired chan struct{} }

func newBootTimer() *bootTimer { return nil }

func (a *bootTimer) run()              {}
func (a *bootTimer) set(time.Duration) {}
func (a *bootTimer) close()            {}
