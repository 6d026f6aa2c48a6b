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
	// DefaultMinTTL is the shortest TTL that a [Driver] grants. A Driver raises shorter requests to it.
	DefaultMinTTL = time.Second
	// DefaultRetryInterval is how long a [Driver] waits for the revocation of an expired lease. Then it sends
	// the lease to the channel again.
	DefaultRetryInterval = 3 * time.Second
	// DefaultMaxSleep is the longest time that a [Driver] sleeps before it reads the clock again.
	DefaultMaxSleep = 500 * time.Millisecond
	// DefaultTick is half the delay from which a [Driver] concludes that its process was paused.
	DefaultTick = 100 * time.Millisecond
	// DefaultGrace is how long a [Driver] waits for renewals after a pause, before it decides ends.
	DefaultGrace = 20 * time.Millisecond
)

// ErrStopped: the driver stopped while the call waited.
var ErrStopped = errors.New("lessor: stopped")

// Interface is the classic lessor: times are whole seconds, and the implementation reads the clock. [Driver]
// implements it. lessortest.Fake implements it for tests of code that needs a lessor.
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

// DriverConfig configures a [Driver]. A zero field means its default; a nil Now means this machine's clocks.
type DriverConfig struct {
	Lessor        Config
	Now           func() clock.Instant // must be safe for concurrent use and never run backwards
	MinTTL        time.Duration        // see DefaultMinTTL
	RetryInterval time.Duration        // see DefaultRetryInterval
	MaxSleep      time.Duration        // see DefaultMaxSleep
	Tick          time.Duration        // see DefaultTick
	Grace         time.Duration        // see DefaultGrace
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
			errs = append(errs, fmt.Errorf("lessor: %s is %v: use a value from 0 to %v", d.name, d.value, MaxTTL))
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
