package claim

import (
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/driver"
)

// Lease is one tenancy of a name. It is safe for concurrent use.
type Lease struct {
	client *Client
	name   string
	holder string
	id     driver.ID

	mu    sync.Mutex
	token driver.Token
	ttl   time.Duration
	until clock.Instant
}

// Name returns what is leased.
func (l *Lease) Name() string { return l.name }

// Incarnation is the id of the claim.
func (l *Lease) Incarnation() driver.ID { return l.id }

// Holder returns the holder's id.
func (l *Lease) Holder() string { return l.holder }

// Store returns where the lease is kept.
func (l *Lease) Store() Store { return l.client.store }

// Token returns the fencing token; 0 if nobody knows whether the claim succeeded.
func (l *Lease) Token() driver.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Until returns until when the lease may be relied on, on this process's clocks: see [clock.Instant.Before].
func (l *Lease) Until() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// TTL returns what was granted.
func (l *Lease) TTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}
