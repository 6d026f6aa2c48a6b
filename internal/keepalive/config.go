package keepalive

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// MinTTL is the shortest TTL that can be claimed. With a shorter TTL, the time between attempts would be shorter than
// the system needs to wake a sleeping program.
const MinTTL = 10 * time.Millisecond

// ErrTTL is the error of [Renewer.Claim] for a TTL shorter than [MinTTL].
var ErrTTL = fmt.Errorf("keepalive: a TTL must be at least %v", MinTTL)

// Config is the configuration of a [Renewer]. The zero value means the defaults.
type Config struct {
	// Drift bounds how far the rates of this machine's clocks and of the store's clock may differ. Zero means
	// [clock.DefaultDrift].
	Drift clock.Drift
	// MaxIDs is the largest number of leases in one message. Zero means no limit.
	MaxIDs int
	// NoHedge is set for a store with only one endpoint, where a hedge could only wait behind the attempt that it
	// hedges. An overdue attempt then goes on alone, until it is answered or its leases end.
	NoHedge bool
	// Seed selects the jitter of renewals, so that clients started at the same moment do not renew together.
	Seed uint64

	steady bool // no jitter: for tests that print times
}

// Validate reports every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	if err := c.Drift.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("keepalive: %w", err))
	}
	if c.MaxIDs < 0 {
		errs = append(errs, fmt.Errorf("keepalive: MaxIDs is %d: must not be negative", c.MaxIDs))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Drift = cmp.Or(c.Drift, clock.DefaultDrift)
	return c
}
