package clientgolease

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// DefaultRetryPeriod is client-go's own default.
const DefaultRetryPeriod = 2 * time.Second

// Options are the settings of a [Lock]. The zero value is valid.
type Options struct {
	// Identity is the name under which other candidates see this one. It is the text on the holder's card. Empty means
	// the host's name and a random text. Safety does not depend on it.
	Identity string
	// LeaseDuration is the TTL of the lease: a leader that dies is replaced when it ends. Zero means
	// [leasekeeper.DefaultTTL].
	LeaseDuration time.Duration
	// RetryPeriod is how long an elector pauses between two attempts, or up to 2.2 times that as a candidate. A waiting
	// candidate reads the name once in each. It is at most a quarter of LeaseDuration. Zero means [DefaultRetryPeriod],
	// or a seventh of LeaseDuration if that is less.
	RetryPeriod time.Duration
}

// Timing is how long the steps of an election take: what a LeaderElectionConfig must contain.
type Timing struct {
	LeaseDuration time.Duration // TTL of the lease
	RenewDeadline time.Duration // the elector gives up when its attempts to renew have failed for so long
	RetryPeriod   time.Duration
}

// durations returns the Timing, with defaults for what is not given.
func (o Options) durations() (Timing, error) {
	t := Timing{LeaseDuration: cmp.Or(o.LeaseDuration, leasekeeper.DefaultTTL)}
	t.RetryPeriod = cmp.Or(o.RetryPeriod, min(DefaultRetryPeriod, t.LeaseDuration/7))
	if t.LeaseDuration < 0 || t.RetryPeriod <= 0 || t.RetryPeriod > t.LeaseDuration/4 {
		return t, fmt.Errorf("%w: a RetryPeriod of %v with a LeaseDuration of %v: it must be positive and at most a quarter of that",
			leasekeeper.ErrInvalid, t.RetryPeriod, t.LeaseDuration)
	}
	// The keeper renews a lease after a third of its TTL. So 0.6 of the TTL remain at any moment, unless the store is slow.
	// An elector that cannot renew notices that after a RetryPeriod, and gives up a RenewDeadline later.
	t.RenewDeadline = t.LeaseDuration*3/5 - t.RetryPeriod
	return t, nil
}

// identity returns the identity, with a default.
func (o Options) identity() (string, error) {
	if o.Identity != "" {
		return o.Identity, backend.CheckCardText(o.Identity)
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("clientgolease: no host name for the identity; set Options.Identity: %w", err)
	}
	identity := host + "_" + rand.Text()
	return identity, backend.CheckCardText(identity)
}
