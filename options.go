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

// DefaultTTL is how long a lease lives without renewal, unless [WithTTL] says otherwise.
const DefaultTTL = 15 * time.Second

// KeeperOption is an argument of [Open] and [New].
type KeeperOption interface{ forKeeper(*keeperOptions) }

// Option applies to one lease. As an argument of [Open] or [New] it is the default for all leases of the keeper.
type Option interface {
	KeeperOption
	forLease(*leaseOptions)
}

type keeperOptions struct {
	holder backend.Holder
	logger *slog.Logger // nil: the keeper logs nothing
	hooks  []Hook
	drift  clock.Drift
	lease  leaseOptions
}

type leaseOptions struct {
	ttl        time.Duration
	text       string
	noWait     bool
	health     HealthCheck   // nil if there is none
	most       time.Duration // how long a tenure may last, if limited
	limited    bool
	least      time.Duration // how long the name stays taken at least
	priority   Priority
	atMostOnce bool
}

type keeperOptionFunc func(*keeperOptions)

func (o keeperOptionFunc) forKeeper(k *keeperOptions) { o(k) }

type leaseOptionFunc func(*leaseOptions)

func (o leaseOptionFunc) forKeeper(k *keeperOptions) { o(&k.lease) }
func (o leaseOptionFunc) forLease(l *leaseOptions)   { o(l) }

// WithTTL sets how long leases live without renewal. After the death of a holder, the next waiter gets the name when the
// TTL has passed; a store that does not answer for less than the TTL loses no lease. The keeper renews a lease at a third
// of its TTL.
func WithTTL(ttl time.Duration) Option { return leaseOptionFunc(func(l *leaseOptions) { l.ttl = ttl }) }

// WithCard puts a text on the holder's card, such as the address of the holder, for people and other programs.
// [Lease.Announce] changes it.
func WithCard(text string) Option { return leaseOptionFunc(func(l *leaseOptions) { l.text = text }) }

// NoWait makes [Keeper.Acquire] and [Keeper.Run] return a [*HeldError] at once if the name is held, instead of waiting.
func NoWait() Option { return leaseOptionFunc(func(l *leaseOptions) { l.noWait = true }) }

// WithPriority makes the claims that wait for a name come before those of a lower priority. The default is 0. It orders
// waiters, and never ends a tenure. Waiters of a low priority wait as long as others with a higher one come. A store that
// cannot order waiters returns [ErrUnsupported] for any priority but 0: etcd, SQLite on another system than
// Linux, and a database whose tickets the user may not write.
func WithPriority(p Priority) Option {
	return leaseOptionFunc(func(l *leaseOptions) { l.priority = p })
}

// WithHolder sets the id of the holder. The default is made of host, process and a random number. Two keepers with the
// same id are still two holders.
func WithHolder(id string) KeeperOption {
	return keeperOptionFunc(func(k *keeperOptions) { k.holder.ID = id })
}

// WithLogger makes the keeper log that leases are acquired, in doubt, lost or released, and first of all the warnings of
// the store about its own settings. Without it the keeper logs nothing. A slow or stuck logger delays nothing else: lines
// that it does not take in time are left out.
func WithLogger(l *slog.Logger) KeeperOption {
	return keeperOptionFunc(func(k *keeperOptions) {
		if l != nil {
			k.logger = l
		}
	})
}

// WithDrift sets how far the rates of this machine's clocks and of the store's may deviate from real time.
// The default is [clock.DefaultDrift], one per cent.
func WithDrift(d clock.Drift) KeeperOption {
	return keeperOptionFunc(func(k *keeperOptions) { k.drift = d })
}

// gather returns the options of a keeper, with defaults for what is not given.
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

// started is about when this process started, to be shown to people.
var started = time.Now()

// trimmed returns the host for a default holder id: short enough, valid UTF-8, without spaces.
func trimmed(host string) string {
	host = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return '-'
		}
		return r
	}, host)
	return strings.ToValidUTF8(host[:min(len(host), backend.MaxHolderID/2)], "")
}

// forOne returns the options of one lease.
func (k *Keeper) forOne(given []Option) (leaseOptions, error) {
	if len(given) == 0 {
		return k.options.lease, nil // New has checked them
	}
	o := k.options.lease
	for _, option := range given {
		option.forLease(&o)
	}
	if err := backend.CheckCardText(o.text); err != nil {
		return o, err
	}
	return o, o.check(k.backend, k.limits)
}

// check returns an error if an option is not valid for the store. The error says what is.
func (o leaseOptions) check(b backend.Backend, limits backend.Limits) error {
	ttl, least := o.ttl, max(keepalive.MinTTL, limits.MinTTL)
	switch {
	case o.limited && o.most <= 0:
		return fmt.Errorf("%w: HoldAtMost of %v: it must be positive", ErrInvalid, o.most)
	case ttl <= 0:
		return fmt.Errorf("%w: a TTL of %v: it must be positive", ErrInvalid, ttl)
	case ttl < least || ttl > limits.MaxTTL:
		return fmt.Errorf("%w: a TTL of %v: with the backend %s it must be from %v to %v", ErrInvalid, ttl, b.Scheme(), least, limits.MaxTTL)
	case o.priority != 0 && !limits.Priorities:
		return &UnsupportedError{Backend: b.Scheme(), What: "a priority of waiters"}
	case o.least < 0:
		return fmt.Errorf("%w: HoldAtLeast of %v: it cannot be negative", ErrInvalid, o.least)
	case o.least > 0:
		finisher, err := backend.Can[backend.Finisher](b)
		if err != nil {
			return err
		}
		return finisher.CheckHold(ttl, o.least)
	}
	return nil
}
