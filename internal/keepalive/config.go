package keepalive

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// MinTTL is the shortest TTL that can be claimed. With a shorter one the fractions in which attempts are
// spaced would be less than what a sleeping program can be woken up in.
const MinTTL = 10 * time.Millisecond

// ErrTTL says that a TTL is shorter than [MinTTL].
var ErrTTL = fmt.Errorf("keepalive: a TTL must be at least %v", MinTTL)

// Config is how a [Renewer] counts and how it sends. The zero value means the defaults.
type Config struct {
	// Drift bounds how far this machine's clocks and the store's may run apart. Zero means
	// [clock.DefaultDrift].
	Drift clock.Drift
	// MaxIDs is how many leases one message may name. Zero means any number.
	MaxIDs int
	// NoHedge says that the store has only one way in, where a hedge could only wait behind the attempt that it
	// hedges. An overdue attempt then goes on alone, until it is answered or its leases end.
	NoHedge bool
	// Seed makes this holder's rhythm unlike that of others which were started at the same moment.
	Seed uint64

	steady bool // for tests that show times: no jitter
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
