package namesapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/duplex"
)

const (
	// abandonGrace is added to the TTL of an abandoned claim, so that a client that repeats its claim after a TTL is in
	// time.
	abandonGrace = time.Second
	// removeTries bounds how often the server tries to remove a claim while its queue changes.
	removeTries = 8
)

// abandonedClaims are waiting claims whose stream has ended. A client may repeat such a claim within its TTL. Until
// then the claim keeps its place, so opening and leaving streams makes no room for more claims. Then the server removes
// the claim even if its lease is renewed, because no client would learn that it holds the name. Each leader keeps its
// own list. A claim abandoned at an earlier leader lasts as long as its lease.
type abandonedClaims struct {
	count atomic.Int64  // len(claims)
	wake  chan struct{} // wakes EndAbandoned after a claim was abandoned; capacity 1

	mu       sync.Mutex
	claims   map[claimKey]abandonedClaim
	attached map[claimKey]int // number of streams that wait for a claim; a client may open its second before its first has ended
}

// claimKey identifies a claim: a lease that waits for a name.
type claimKey struct {
	name  string
	lease lessor.ID
}

// abandonedClaim is the place of a claim whose stream has ended.
type abandonedClaim struct {
	free func() // frees the place
	due  time.Time
}

func newAbandonedClaims() *abandonedClaims {
	return &abandonedClaims{wake: make(chan struct{}, 1), claims: make(map[claimKey]abandonedClaim), attached: make(map[claimKey]int)}
}

// AbandonedClaims returns the number of waiting claims whose stream has ended.
func (s *Service) AbandonedClaims() int64 { return s.abandoned.count.Load() }

// attach counts a stream that waits for a claim.
func (l *abandonedClaims) attach(key claimKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attached[key]++
}

// detach removes a stream that waits for a claim.
func (l *abandonedClaims) detach(key claimKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attached[key]--; l.attached[key] <= 0 {
		delete(l.attached, key)
	}
}

// abandon takes a place for a claim, unless another stream waits for it.
func (l *abandonedClaims) abandon(from *admission.Share, key claimKey, ttl time.Duration) {
	l.mu.Lock()
	if l.attached[key] > 0 {
		l.mu.Unlock()
		return
	}
	c := abandonedClaim{from.Keep(), time.Now().Add(ttl + abandonGrace)}
	before, twice := l.claims[key]
	l.claims[key] = c
	l.count.Store(int64(len(l.claims)))
	l.mu.Unlock()
	if twice {
		before.free()
	}
	duplex.Notify(l.wake)
}

// resume frees the place of an abandoned claim whose client has repeated or released it.
func (l *abandonedClaims) resume(key claimKey) {
	if l.count.Load() == 0 {
		return
	}
	l.mu.Lock()
	c, found := l.claims[key]
	delete(l.claims, key)
	l.count.Store(int64(len(l.claims)))
	l.mu.Unlock()
	if found {
		c.free()
	}
}

// due returns the claims whose time has passed, and when the next one is due. next is zero if there are no others.
func (l *abandonedClaims) due(now time.Time) (over []claimKey, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, c := range l.claims { // order: each one separately
		switch {
		case !c.due.After(now):
			over = append(over, key)
		case next.IsZero() || c.due.Before(next):
			next = c.due
		}
	}
	return over, next
}

// EndAbandoned removes abandoned claims when their time has passed. It runs until the server stops.
func (s *Service) EndAbandoned() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.abandoned.wake:
		case <-timer.C:
		case <-s.cfg.Lifetime.Done():
			return
		}
		over, next := s.abandoned.due(time.Now())
		for _, key := range over {
			ctx, cancel := context.WithTimeout(admission.AsServer(s.cfg.Lifetime.Context()), s.cfg.RequestTimeout)
			err := s.removeIfWaiting(ctx, key)
			cancel()
			if err != nil && !errors.Is(err, ownership.ErrLost) && !errors.Is(err, replica.ErrNoLeader) && !errors.Is(err, replica.ErrNotLeader) {
				s.cfg.Log.Warn("an abandoned claim could not be removed from its queue; it ends with its lease", "error", err)
			}
			s.abandoned.resume(key)
		}
		if len(over) > 0 {
			duplex.Notify(s.abandoned.wake) // claims may have been abandoned in the meantime
		}
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), abandonGrace/4))
		}
	}
}

// removeIfWaiting deletes the key of a claim if another key is ahead of it in the queue. If the claim owns the name by
// now, it stays.
func (s *Service) removeIfWaiting(ctx context.Context, key claimKey) error {
	own := ownership.Key(key.name, key.lease)
	prefix, end := []byte(key.name+"/"), []byte(key.name+"0") // the character 0 follows the slash
	for range removeTries {
		place, err := s.cfg.Member.Place(ctx, key.name, key.lease)
		if err != nil || place.Before == 0 {
			return err
		}
		_, found, err := s.cfg.Member.Txn(ctx, keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.RangeRequest{
			Key: prefix, End: end, Limit: 1, KeysOnly: true, MaxCreateRevision: place.Token - 1,
			SortTarget: keyspace.SortByCreate, SortOrder: keyspace.SortDescend,
		}}}, false)
		if err != nil {
			return err
		}
		before := found.Results[0].(keyspace.RangeResult).KVs
		if len(before) == 0 {
			continue // the claim owns the name by now
		}
		_, ended, err := s.cfg.Member.Txn(ctx, keyspace.TxnRequest{
			Compare: []keyspace.Compare{
				{Target: keyspace.CompareCreate, Key: own, Number: place.Token},
				{Target: keyspace.CompareCreate, Key: before[0].Key, Number: before[0].CreateRevision},
			},
			Success: []keyspace.TxnOp{keyspace.DeleteRequest{Key: own}},
		}, false)
		if err != nil || ended.Succeeded {
			return err
		}
	}
	return nil
}
