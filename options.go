package leasekeeper

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

// DefaultTTL is how long a lease lives without renewal if nothing else is asked for.
const DefaultTTL = 15 * time.Second

// KeeperOption is given to [Open] and [New].
type KeeperOption interface{ forKeeper(*keeperOptions) }

// Option is given with one lease. Given to [Open] or [New] it is the default for all leases of the keeper.
type Option interface {
	KeeperOption
	forLease(*leaseOptions)
}

type keeperOptions struct {
	holder backend.Holder
	logger *slog.Logger // nil if nothing is to be logged
	drift  clock.Drift
	lease  leaseOptions
}

type leaseOptions struct {
	ttl    time.Duration
	text   string
	noWait bool
}

type keeperOption func(*keeperOptions)

func (o keeperOption) forKeeper(k *keeperOptions) { o(k) }

type leaseOption func(*leaseOptions)

func (o leaseOption) forKeeper(k *keeperOptions) { o(&k.lease) }
func (o leaseOption) forLease(l *leaseOptions)   { o(l) }

// WithTTL asks for leases that live so long without renewal. A short one is taken over soon after its
// holder died; a long one survives longer troubles. A lease is renewed at a third of it.
func WithTTL(ttl time.Duration) Option { return leaseOption(func(l *leaseOptions) { l.ttl = ttl }) }

// WithCard puts a text on the holder's card, for people and for those who want to find the holder, such as
// its address. [Lease.Announce] changes it.
func WithCard(text string) Option { return leaseOption(func(l *leaseOptions) { l.text = text }) }

// NoWait makes [Keeper.Acquire] and [Keeper.Run] return a [*HeldError] at once if somebody holds the name,
// instead of standing in line.
func NoWait() Option { return leaseOption(func(l *leaseOptions) { l.noWait = true }) }

// WithHolder names the holder. The default is made of host, process and a random number. Two keepers with
// one name are still two holders.
func WithHolder(id string) KeeperOption {
	return keeperOption(func(k *keeperOptions) { k.holder.ID = id })
}

// WithLogger lets the keeper log what becomes of leases: that they were acquired, are in doubt, are lost or
// released; and, first of all, how the store can fall short of what it is asked for. Without it nothing is logged. A logger that is slow, or stuck, holds up nothing: what it does not
// take in time is left out.
func WithLogger(l *slog.Logger) KeeperOption {
	return keeperOption(func(k *keeperOptions) {
		if l != nil {
			k.logger = l
		}
	})
}

// WithDrift says how far the rates of this machine's clocks and of the store's may be apart from real time.
// The default is [clock.DefaultDrift], one per cent.
func WithDrift(d clock.Drift) KeeperOption {
	return keeperOption(func(k *keeperOptions) { k.drift = d })
}

// gather makes the options of a keeper.
func gather(given []KeeperOption) (keeperOptions, error) {
	host, err := os.Hostname()
	if err != nil || backend.CheckHolder(backend.Holder{ID: host}) != nil {
		host = "unknown"
	}
	o := keeperOptions{
		holder: backend.Holder{
			ID:   fmt.Sprintf("%s/%d/%08x", trimmed(host), os.Getpid(), rand.Uint32()),
			Card: backend.Card{Host: host, PID: os.Getpid(), Started: started},
		},
		lease: leaseOptions{ttl: DefaultTTL},
	}
	for _, option := range given {
		option.forKeeper(&o)
	}
	o.holder.Card.Text = o.lease.text
	if err := backend.CheckHolder(o.holder); err != nil {
		return o, err
	}
	if err := o.drift.Validate(); err != nil {
		return o, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return o, nil
}

// started is when this process started, near enough to be shown.
var started = time.Now()

// trimmed keeps a default id short enough whatever the host is called.
func trimmed(host string) string {
	host = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return '-'
		}
		return r
	}, host)
	return strings.ToValidUTF8(host[:min(len(host), backend.MaxHolderID/2)], "")
}

// forOne makes the options of one lease.
func (k *Keeper) forOne(given []Option) (leaseOptions, error) {
	if len(given) == 0 {
		return k.options.lease, nil // they were looked at when the keeper was made
	}
	o := k.options.lease
	for _, option := range given {
		option.forLease(&o)
	}
	if err := backend.CheckCardText(o.text); err != nil {
		return o, err
	}
	return o, checkTTL(o.ttl, k.limits, k.backend.Scheme())
}

// checkTTL returns an error that says which TTLs a store takes.
func checkTTL(ttl time.Duration, limits backend.Limits, scheme string) error {
	least := max(keepalive.MinTTL, limits.MinTTL)
	switch {
	case ttl <= 0:
		return fmt.Errorf("%w: a TTL of %v: it must be positive", ErrInvalid, ttl)
	case ttl < least || ttl > limits.MaxTTL:
		return fmt.Errorf("%w: a TTL of %v: with the backend %s it must be from %v to %v", ErrInvalid, ttl, scheme, least, limits.MaxTTL)
	}
	return nil
}
