//go:build !linux

package leasekeeper

import "time"

// bootTimer is there on Linux only. Elsewhere a lease whose deadline has passed while the machine slept is
// noticed by the next use, or when the timer fires that was armed for nine tenths of what was left.
type bootTimer struct{ fired chan struct{} }

func newBootTimer() *bootTimer { return nil }

func (a *bootTimer) run()              {}
func (a *bootTimer) set(time.Duration) {}
func (a *bootTimer) close()            {}
