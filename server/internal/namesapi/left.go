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
	// leftGrace is added to the TTL after which a claim ends that nobody listens for, so that a client that asks
	// again after a TTL is not late.
	leftGrace = time.Second
	// leftTries bounds how often a claim is looked at again because the queue has moved meanwhile.
	leftTries = 8
)

// leftClaims are claims in a queue whose stream has ended. Their clients may come back for them within a TTL. Until then
// each keeps its place, so that opening streams and leaving them does not make room for more. Then the claim ends, even
// if its lease is renewed: nobody would hear that it has its turn. The leader's server keeps this; a claim that was left
// at an earlier leader lives as long as its lease.
type leftClaims struct {
	many atomic.Int64  // how many there are
	wake chan struct{} // holds one: there are some again

	mu     sync.Mutex
	claims map[leftKey]leftClaim
	heard  map[leftKey]int // how many streams listen for a claim: a client may open a second before the first has ended
}

type leftKey struct {
	name  string
	lease lessor.ID
}

type leftClaim struct {
	free func() // frees the place of the claim
	due  time.Time
}

func newLeftClaims() *leftClaims {
	return &leftClaims{wake: make(chan struct{}, 1), claims: make(map[leftKey]leftClaim), heard: make(map[leftKey]int)}
}

// LeftClaims returns how many claims are queued whose stream has ended.
func (s *Service) LeftClaims() int64 { return s.left.many.Load() }

// listen says that a stream listens for a claim in a queue.
func (l *leftClaims) listen(key leftKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard[key]++
}

// unlisten says that a stream listens no longer.
func (l *leftClaims) unlisten(key leftKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard[key]--; l.heard[key] <= 0 {
		delete(l.heard, key)
	}
}

// leave takes a place for a claim that nobody listens for.
func (l *leftClaims) leave(from *admission.Share, key leftKey, ttl time.Duration) {
	l.mu.Lock()
	if l.heard[key] > 0 {
		l.mu.Unlock()
		return
	}
	c := leftClaim{from.Keep(), time.Now().Add(ttl + leftGrace)}
	before, twice := l.claims[key]
	l.claims[key] = c
	l.many.Store(int64(len(l.claims)))
	l.mu.Unlock()
	if twice {
		before.free()
	}
	duplex.Notify(l.wake)
}

// back gives the place of a claim back whose client has come back for it, or has ended it.
func (l *leftClaims) back(key leftKey) {
	if l.many.Load() == 0 {
		return
	}
	l.mu.Lock()
	c, found := l.claims[key]
	delete(l.claims, key)
	l.many.Store(int64(len(l.claims)))
	l.mu.Unlock()
	if found {
		c.free()
	}
}

// due returns the claims whose time is over, and when to look again; that is never if there are no others.
func (l *leftClaims) due(now time.Time) (over []leftKey, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, c := range l.claims { // order: each by itself
		switch {
		case !c.due.After(now):
			over = append(over, key)
		case next.IsZero() || c.due.Before(next):
			next = c.due
		}
	}
	return over, next
}

// EndLeft ends claims that were left for too long, until the server stops.
func (s *Service) EndLeft() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.left.wake:
		case <-timer.C:
		case <-s.cfg.Lifetime.Done():
			return
		}
		over, next := s.left.due(time.Now())
		for _, key := range over {
			ctx, cancel := context.WithTimeout(s.cfg.Lifetime.Context(), s.cfg.RequestTimeout)
			err := s.endIfWaiting(ctx, key)
			cancel()
			if err != nil && !errors.Is(err, ownership.ErrLost) && !errors.Is(err, replica.ErrNoLeader) && !errors.Is(err, replica.ErrNotLeader) {
				s.cfg.Log.Warn("an abandoned claim could not be removed from its queue; it ends with its lease", "error", err)
			}
			s.left.back(key)
		}
		if len(over) > 0 {
			duplex.Notify(s.left.wake) // claims may have been left meanwhile
		}
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), leftGrace/4))
		}
	}
}

// endIfWaiting deletes the key of a claim, on the condition that another key is before it in the queue: an owner keeps
// its name.
func (s *Service) endIfWaiting(ctx context.Context, key leftKey) error {
	own := ownership.Key(key.name, key.lease)
	prefix, end := []byte(key.name+"/"), []byte(key.name+"0") // the character 0 comes after the slash
	for range leftTries {
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
			continue // it has its turn by now
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
