package lessor

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// DefaultMaxExpiries is the maximum number of leases that one Due expires.
	DefaultMaxExpiries = 1024
	// DefaultMaxCheckpoints is the maximum number of checkpoints, and of clears, that one Due hands out.
	DefaultMaxCheckpoints = 4096
	// DefaultMaxVisits is the maximum number of queue entries that one Due inspects.
	DefaultMaxVisits = 65536
)

// Config configures a [Lessor]. The limits bound the work of one call and the size of one log entry. They do
// not change which leases end or when. A zero value means the default.
type Config struct {
	MaxExpiries    int // leases that one Due expires
	MaxCheckpoints int // checkpoints, and clears, that one Due hands out
	MaxVisits      int // queue entries that one Due inspects, including those of renewed leases

	// NoEndBefore is an instant before which no lease is decided to end, although its deadline may pass earlier. The
	// zero Instant holds nothing up.
	NoEndBefore clock.Instant
}

// Validate reports every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	for _, limit := range []struct {
		name  string
		value int
	}{
		{"MaxExpiries", c.MaxExpiries},
		{"MaxCheckpoints", c.MaxCheckpoints},
		{"MaxVisits", c.MaxVisits},
	} {
		if limit.value < 0 {
			errs = append(errs, fmt.Errorf("lessor: %s is %d: use 0 for the default, or a positive number", limit.name, limit.value))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.MaxExpiries = cmp.Or(c.MaxExpiries, DefaultMaxExpiries)
	c.MaxCheckpoints = cmp.Or(c.MaxCheckpoints, DefaultMaxCheckpoints)
	c.MaxVisits = cmp.Or(c.MaxVisits, DefaultMaxVisits)
	return c
}
