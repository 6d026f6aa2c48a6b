package claim

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// MinTTL and MaxTTL bound the TTLs that a [Client] grants. MinTTL leaves a few milliseconds to rely on with the
// largest drift bound. MaxTTL, stretched by that bound, is still a time to which a clock can count.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 365 * 24 * time.Hour
)

// maxToken is the largest token that a holder gets. Databases keep tokens as signed numbers, and the end of a
// tenure takes one more.
const maxToken = backend.Token(1<<63 - 2)

// MaxReason and MaxPins bound what an operator writes into a record.
const (
	MaxReason = 1024 // bytes, of a pin or a revocation
	MaxPins   = 64
)

// These limits bound the memory of a client. A forgotten entry costs time, never safety.
const (
	maxObservations = 1 << 16
	maxUnsettled    = 1 << 14
	maxReleased     = 1 << 10
)

// settleTime is how long a client still reads back the outcome of a write when the context has ended.
const settleTime = 500 * time.Millisecond

// Options say how a [Client] counts time, and how often it retries. The zero value is right for a program.
type Options struct {
	// Clock is the clock by which the client counts. The default is this machine's clocks, together with their
	// Domain.
	Clock backend.Clock
	// Domain is the domain of Clock. A Clock without a Domain belongs to this client alone.
	Domain clock.Domain
	// Drift bounds how wrong any clock's rate is. It must be the same for all clients of a namespace. The
	// default is [clock.DefaultDrift].
	Drift clock.Drift
	// Attempts is how often a claim is tried while other clients change the record. Renewals and releases are
	// tried four times as often. The default is 8.
	Attempts int
	// Acknowledge is the shortest time between two writes of the domain's clock record, which renewals then
	// make, if the store is one of [Clocks]. Other clients can infer from it earlier that a silent holder's
	// leases have expired. 0 means never.
	Acknowledge time.Duration
	// Pause waits between attempts; the default sleeps. A simulation puts its own time here.
	Pause func(ctx context.Context, d time.Duration) error
	// Wall returns the time that is shown to people; the default is [time.Now]. It decides only which
	// tombstones are old enough for [Client.Collect].
	Wall func() time.Time
}

// Client makes, keeps and ends leases in a [Store]. It is safe for concurrent use.
type Client struct {
	store         Store
	opts          Options
	domain        clock.Domain
	privateDomain bool  // no other process shares the domain
	judges        bool  // the store's clock decides ends
	comparesFloor bool  // the store compares the floor in the write
	noMarks       error // why the store keeps no marks; nil if it does
	local         Local
	clocks        Clocks

	mu               sync.Mutex
	observations     map[string]observation
	unsettled        map[backend.ID]*Lease
	released         map[string]*Record // the records of names that this client has released
	acknowledged     clock.Instant      // when the clock record was last written
	everAcknowledged bool
}

// NewClient returns a client of s. Closing s stays the caller's task.
func NewClient(s Store, o Options) (*Client, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: the store is nil: a client needs one", backend.ErrInvalid)
	}
	if err := o.Drift.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	if o.Attempts < 0 || o.Acknowledge < 0 {
		return nil, fmt.Errorf("%w: neither attempts nor the time between acknowledgements can be negative", backend.ErrInvalid)
	}
	o.fill()
	c := &Client{
		store:        s,
		opts:         o,
		domain:       o.Domain,
		observations: make(map[string]observation),
		unsettled:    make(map[backend.ID]*Lease),
		released:     make(map[string]*Record),
	}
	if c.domain == clock.UnknownDomain {
		// The client has a domain of its own: its instants cannot be compared with those of any other process.
		op := NewOp()
		c.domain, c.privateDomain = clock.Domain("process:"+hex.EncodeToString(op[:])), true
	}
	if j, ok := s.(Judge); ok {
		c.judges = j.Judges()
	}
	if c.local, _ = s.(Local); c.local != nil && !c.privateDomain {
		c.domain = c.local.Domain(c.domain)
	}
	c.clocks, _ = s.(Clocks)
	if b, ok := s.(Bounded); ok {
		c.comparesFloor = b.Bounds()
	}
	if m, ok := s.(Marker); ok {
		c.noMarks = m.CanMark()
	}
	return c, nil
}

// fill sets the defaults where nothing is set.
func (o *Options) fill() {
	if o.Clock == nil {
		o.Clock = clock.System{}
		if o.Domain == clock.UnknownDomain {
			o.Domain = clock.SystemDomain()
		}
	}
	if o.Drift == 0 {
		o.Drift = clock.DefaultDrift
	}
	if o.Attempts == 0 {
		o.Attempts = 8
	}
	if o.Pause == nil {
		o.Pause = sleep
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
}

// Store returns the store with which the client was made.
func (c *Client) Store() Store { return c.store }

// Options returns the client's options, with the defaults filled in. Domain is the one that the options named,
// or that was found. Records may bear another, which the store has derived from it ([Local]).
func (c *Client) Options() Options { return c.opts }

// Now reads the client's clocks, on which [Lease.Until] is an instant.
func (c *Client) Now() clock.Instant { return c.opts.Clock.Now() }

// Wall returns the time that is shown to people, in UTC and as exactly as every store can keep it. No decision
// depends on it.
func (c *Client) Wall() time.Time { return c.opts.Wall().UTC().Truncate(time.Millisecond) }

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("%w: the TTL is %v: it must be from %v to %v", backend.ErrInvalid, ttl, MinTTL, MaxTTL)
	}
	return nil
}

func checkReason(why string) error {
	if len(why) > MaxReason {
		return fmt.Errorf("%w: the reason has %d bytes: it may have at most %d", backend.ErrInvalid, len(why), MaxReason)
	}
	return backend.CheckCardText(why)
}

// acknowledge publishes, now and then, how far the clocks of this domain are. The statement is true whenever it
// arrives and its loss harms no client, so a failed write is not repeated.
func (c *Client) acknowledge(ctx context.Context) {
	if c.clocks == nil || c.privateDomain || c.opts.Acknowledge == 0 {
		return
	}
	now := c.Now()
	c.mu.Lock()
	due := !c.everAcknowledged || now.Elapsed(c.acknowledged) >= c.opts.Acknowledge
	if due {
		c.acknowledged, c.everAcknowledged = now, true
	}
	c.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	_ = c.clocks.Acknowledge(ctx, c.domain, now)
}
