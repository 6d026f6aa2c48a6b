package lessor

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// DefaultMinTTL is the shortest TTL a [Driver] grants; shorter requests are raised to it.
	DefaultMinTTL = time.Second
	// DefaultRetryInterval is how long a [Driver] waits for an expired lease to be revoked before it hands
	// it out again.
	DefaultRetryInterval = 3 * time.Second
	// DefaultMaxSleep is how long a [Driver] sleeps at most before it looks at the clock again.
	DefaultMaxSleep = 500 * time.Millisecond
	// DefaultTick is the unit in which a [Driver] measures that it has been paused: by two of them.
	DefaultTick = 100 * time.Millisecond
	// DefaultGrace is how long a [Driver] that has been paused lets renewals in before it decides ends.
	DefaultGrace = 20 * time.Millisecond
)

// ErrStopped: the driver was stopped while the call waited.
var ErrStopped = errors.New("lessor: stopped")

// Interface is the classic lessor: times are whole seconds and the implementation reads the clock itself.
// [Driver] implements it, and lessortest.Fake does for tests of code that needs one.
type Interface interface {
	SetRangeDeleter(deleter RangeDeleter)
	SetCheckpointer(checkpointer Checkpointer)
	Grant(id ID, ttl int64) (*Lease, error)
	Revoke(id ID) error
	Checkpoint(id ID, remainingTTL int64) error
	Attach(id ID, items []Item) error
	Detach(id ID, items []Item) error
	GetLease(item Item) ID
	Promote(extend time.Duration)
	Demote()
	Renew(id ID) (int64, error)
	Lookup(id ID) *Lease
	Leases() []*Lease
	ExpiredLeasesC() <-chan []*Lease
	Recover(records iter.Seq[Record], leaderships []Leadership)
	Stop()
}

var _ Interface = (*Driver)(nil)

// DriverConfig configures a [Driver]. The zero value means the machine's clocks and the defaults.
type DriverConfig struct {
	Lessor        Config
	Now           func() clock.Instant // safe for concurrent use, never expiring back
	MinTTL        time.Duration
	RetryInterval time.Duration
	MaxSleep      time.Duration
	Tick          time.Duration
	Grace         time.Duration
}

// Validate reports every field that is out of range.
func (c DriverConfig) Validate() error {
	errs := []error{c.Lessor.Validate()}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"MinTTL", c.MinTTL}, {"RetryInterval", c.RetryInterval}, {"MaxSleep", c.MaxSleep}, {"Tick", c.Tick}, {"Grace", c.Grace},
	} {
		if d.value < 0 || d.value > MaxTTL {
			errs = append(errs, fmt.Errorf("lessor: %s is %v: must be between 0 and %v", d.name, d.value, MaxTTL))
		}
	}
	return errors.Join(errs...)
}

func (c DriverConfig) withDefaults() DriverConfig {
	if c.Now == nil {
		c.Now = clock.Now
	}
	c.MinTTL = cmp.Or(c.MinTTL, DefaultMinTTL)
	c.RetryInterval = cmp.Or(c.RetryInterval, DefaultRetryInterval)
	c.MaxSleep = cmp.Or(c.MaxSleep, DefaultMaxSleep)
	c.Tick = cmp.Or(c.Tick, DefaultTick)
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	return c
}
