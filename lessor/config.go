package lessor

import (
	"cmp"
	"errors"
	"fmt"
)

const (
	// DefaultMaxExpiries is how many leases one Due ends at most.
	DefaultMaxExpiries = 1024
	// DefaultMaxCheckpoints is how many checkpoints, and how many clears, one Due hands out at most.
	DefaultMaxCheckpoints = 4096
	// DefaultMaxVisits is how many queue entries one Due looks at at most.
	DefaultMaxVisits = 65536
)

// Config holds the limits of a [Lessor]. They bound the work of one call and the size of one log entry;
// they never change what is right. The zero value means the defaults.
type Config struct {
	MaxExpiries    int // leases ended by one Due
	MaxCheckpoints int // checkpoints, and clears, handed out by one Due
	MaxVisits      int // queue entries looked at by one Due, renewed ones included
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
			errs = append(errs, fmt.Errorf("lessor: %s is %d: must not be negative", limit.name, limit.value))
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
