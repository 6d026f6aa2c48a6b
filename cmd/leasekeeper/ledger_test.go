package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// overstayLimit is how late a short lease may end, because this machine may be busy.
const overstayLimit = 3 * time.Second

// ledger is what all clients together know about a server: the acknowledged changes, and the requests without an answer.
type ledger struct {
	t  *testing.T
	mu sync.Mutex

	keys      map[string]*keyRecord
	leases    map[int64]*leaseRecord
	revisions map[int64]string // key written at each revision
	newest    int64            // the highest revision acknowledged
	term      uint64

	unknownGrants int // grants without an answer whose ids the server chose

	puts, deletes, grants, renewals, revocations, unknown, expiries int
}

// keyRecord is what the ledger knows of one key.
type keyRecord struct {
	value    *string // nil if the key does not exist
	revision int64   // 0 if unknown
	lease    int64

	pending      bool // a write of the next two fields has no answer
	pendingValue *string
	pendingLease int64
}

type leaseState int

const (
	leasePending  leaseState = iota // a grant without an answer, under an id that the client chose
	leaseAlive                      // acknowledged
	leaseRevoking                   // acknowledged, with a revocation without an answer
	leaseEnded                      // the end was acknowledged or observed
)

// leaseRecord is what the ledger knows of one lease.
type leaseRecord struct {
	state leaseState
	ttl   time.Duration // 0 if unknown
	since time.Time     // when the client sent the request that was last acknowledged
	// counts is the latest start of the TTL on a server that knows no renewal: the first check after the grant. Zero
	// before that check.
	counts time.Time
	looked bool // the remaining time was checked since the last acknowledgement
}

func (l *leaseRecord) isShort() bool { return l.ttl > 0 && l.ttl < longTTL*time.Second }

// mayHaveEnded reports whether a lease that no client revoked may have ended by now.
func (l *leaseRecord) mayHaveEnded(now time.Time) bool {
	return l.isShort() && now.After(l.since.Add(l.ttl))
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, keys: make(map[string]*keyRecord), leases: make(map[int64]*leaseRecord), revisions: make(map[int64]string)}
}

// writing records a write before it is sent, and returns the revision that it must exceed.
func (b *ledger) writing(key string, value *string, lease int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[key]
	if k == nil {
		k = new(keyRecord)
		b.keys[key] = k
	}
	k.pending, k.pendingValue, k.pendingLease = true, value, lease
	return b.newest
}

// written records the acknowledgement of a write. A negative floor means that it made no revision.
func (b *ledger) written(key string, revision, floor int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[key]
	if k.pendingValue == nil {
		b.deletes++
	} else {
		b.puts++
	}
	if floor >= 0 {
		if revision <= floor {
			b.t.Errorf("%s was written at revision %d, but %d had been acknowledged before", key, revision, floor)
		}
		if other, used := b.revisions[revision]; used {
			b.t.Errorf("%s was written at revision %d, as was %s", key, revision, other)
		}
		b.revisions[revision] = key
	}
	b.newest = max(b.newest, revision)
	*k = keyRecord{value: k.pendingValue, revision: revision, lease: k.pendingLease}
}

func (b *ledger) granting(wanted int64) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wanted == 0 {
		b.unknownGrants++
	} else if b.leases[wanted] == nil {
		b.leases[wanted] = &leaseRecord{state: leasePending}
	}
	return time.Now()
}

func (b *ledger) granted(wanted, id, ttl int64, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grants++
	if wanted == 0 {
		b.unknownGrants--
		if b.leases[id] != nil {
			b.t.Errorf("the server chose lease id %x twice", id)
		}
	} else if id != wanted {
		b.t.Errorf("asked for lease %x, was granted %x", wanted, id)
	}
	b.leases[id] = &leaseRecord{state: leaseAlive, ttl: time.Duration(ttl) * time.Second, since: sent}
}

func (b *ledger) renewed(id, ttl int64, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.renewals++
	l := b.leases[id]
	if got := time.Duration(ttl) * time.Second; got != l.ttl {
		b.t.Errorf("renewing lease %x gave it %v instead of %v", id, got, l.ttl)
	}
	l.since, l.looked = sent, false
}

func (b *ledger) revoking(id int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases[id].state = leaseRevoking
}

func (b *ledger) revoked(id, revision int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revocations++
	b.leases[id].state = leaseEnded
	b.newest = max(b.newest, revision)
}

// refused records a missing answer or an error, and reports whether the worker continues. The request stays pending
// until the next check.
func (b *ledger) refused(err error, lease int64, what string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		b.unknown++
		return false
	case codes.NotFound:
		if l := b.leases[lease]; l != nil && l.mayHaveEnded(time.Now()) {
			return true
		}
	}
	b.t.Errorf("%s: %v", what, err)
	return false
}

// check compares a restarted server with the ledger, and settles pending requests. If thorough, it checks the remaining
// time of every lease, not only of recently acknowledged ones.
func (b *ledger) check(ctx context.Context, c stubs, thorough bool) {
	b.t.Helper()
	ready := time.Now()
	status, err := pb.NewMaintenanceClient(c.conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		b.t.Fatal(err)
	}
	if got := status.Header.Revision; got < b.newest {
		b.t.Errorf("the server is at revision %d, but %d was acknowledged", got, b.newest)
	}
	if status.RaftTerm < b.term {
		b.t.Errorf("the term went back from %d to %d", b.term, status.RaftTerm)
	}
	b.term = status.RaftTerm
	b.checkLeases(ctx, c, ready)
	b.checkKeys(ctx, c)
	b.checkRemaining(ctx, c, thorough)
}

func (b *ledger) checkLeases(ctx context.Context, c stubs, ready time.Time) {
	b.t.Helper()
	there := b.listLeases(ctx, c)
	for id, l := range b.leases {
		found := there[id]
		switch l.state {
		case leasePending:
			l.state = leaseEnded
			if found {
				l.state = leaseAlive
			}
		case leaseRevoking:
			l.state = leaseAlive
			if !found {
				l.state = leaseEnded
			}
		case leaseEnded:
			if found {
				b.t.Errorf("lease %x has ended, but exists again", id)
			}
		case leaseAlive:
			b.checkAlive(ctx, c, id, l, found, ready)
		}
	}
	for id := range there {
		if b.leases[id] == nil {
			// The lease belongs to a grant without an answer.
			b.unknownGrants--
			b.leases[id] = &leaseRecord{state: leaseAlive}
			if b.unknownGrants < 0 {
				b.t.Errorf("no client requested lease %x", id)
			}
		}
	}
	b.unknownGrants = 0
}

// checkAlive checks a lease that was acknowledged and not revoked.
func (b *ledger) checkAlive(ctx context.Context, c stubs, id int64, l *leaseRecord, found bool, ready time.Time) {
	b.t.Helper()
	if l.counts.IsZero() {
		l.counts = ready
	}
	if !found {
		if !l.mayHaveEnded(time.Now()) {
			b.t.Errorf("lease %x is gone %v after it was last acknowledged, its TTL is %v", id, time.Since(l.since), l.ttl)
		}
		l.state = leaseEnded
		b.expiries++
		return
	}
	if !l.isShort() {
		return
	}
	// Restarts do not prolong the lease repeatedly.
	for due := l.counts.Add(l.ttl); found && time.Now().After(due); found = b.listLeases(ctx, c)[id] {
		if late := time.Since(due); late > overstayLimit {
			b.t.Errorf("lease %x still exists %v after it had to end", id, late)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	if !found {
		l.state = leaseEnded
		b.expiries++
	}
}

func (b *ledger) listLeases(ctx context.Context, c stubs) map[int64]bool {
	b.t.Helper()
	resp, err := c.lease.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
	if err != nil {
		b.t.Fatal(err)
	}
	there := make(map[int64]bool, len(resp.Leases))
	for _, l := range resp.Leases {
		there[l.ID] = true
	}
	return there
}

func (b *ledger) checkKeys(ctx context.Context, c stubs) {
	b.t.Helper()
	resp, err := c.kv.Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err != nil {
		b.t.Fatal(err)
	}
	there := make(map[string]*mvccpb.KeyValue, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		there[string(kv.Key)] = kv
		if b.keys[string(kv.Key)] == nil {
			b.t.Errorf("no client put %s", kv.Key)
		}
	}
	for key, k := range b.keys {
		b.checkKey(key, k, there[key])
	}
}

// checkKey compares a key with the server's, and settles a pending write.
func (b *ledger) checkKey(key string, k *keyRecord, there *mvccpb.KeyValue) {
	b.t.Helper()
	if k.pending && matches(there, k.pendingValue) && !matches(there, k.value) {
		b.settle(key, k, there)
		return
	}
	k.pending, k.pendingValue, k.pendingLease = false, nil, 0
	l := b.leases[k.lease]
	switch {
	case k.value != nil && l != nil && l.state == leaseEnded:
		if there != nil {
			b.t.Errorf("%s exists, but its lease %x has ended", key, k.lease)
		}
		*k = keyRecord{}
	case k.value != nil && l != nil && there == nil && l.mayHaveEnded(time.Now()):
		l.state = leaseEnded // it ended after checkLeases listed the leases
		b.expiries++
		*k = keyRecord{}
	case !matches(there, k.value):
		b.t.Errorf("%s is %v, but acknowledged is %s at revision %d", key, there, inWords(k.value), k.revision)
	case there != nil && (there.ModRevision != k.revision || there.Lease != k.lease):
		b.t.Errorf("%s has revision %d and lease %x, but acknowledged are %d and %x", key, there.ModRevision, there.Lease, k.revision, k.lease)
	}
}

// settle records that a write without an answer has taken effect.
func (b *ledger) settle(key string, k *keyRecord, there *mvccpb.KeyValue) {
	b.t.Helper()
	settled := keyRecord{value: k.pendingValue, lease: k.pendingLease}
	if there != nil {
		settled.revision = there.ModRevision
		if there.ModRevision <= k.revision || there.Lease != k.pendingLease {
			b.t.Errorf("%s has revision %d and lease %x; asked for was lease %x, after revision %d", key, there.ModRevision, there.Lease, k.pendingLease, k.revision)
		}
		if other, used := b.revisions[there.ModRevision]; used {
			b.t.Errorf("%s has revision %d, which %s was written at", key, there.ModRevision, other)
		}
		b.revisions[there.ModRevision] = key
		if l := b.leases[k.pendingLease]; l != nil && l.state == leaseEnded {
			b.t.Errorf("%s exists, but its lease %x has ended", key, k.pendingLease)
		}
		b.newest = max(b.newest, there.ModRevision)
	}
	*k = settled
}

func matches(there *mvccpb.KeyValue, value *string) bool {
	if there == nil || value == nil {
		return there == nil && value == nil
	}
	return string(there.Value) == *value
}

func inWords(value *string) string {
	if value == nil {
		return "nothing"
	}
	return *value
}

// checkRemaining checks the remaining time of leases that are alive.
func (b *ledger) checkRemaining(ctx context.Context, c stubs, thorough bool) {
	b.t.Helper()
	for id, l := range b.leases {
		if l.state != leaseAlive || l.looked && !thorough {
			continue
		}
		resp, err := c.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id})
		if err != nil {
			b.t.Fatal(err)
		}
		elapsed := time.Since(l.since)
		l.looked = true
		switch remaining := time.Duration(resp.TTL) * time.Second; {
		case l.ttl == 0:
			// The grant had no answer, so the server promised no time. A short lease may have ended just now.
			l.ttl = max(time.Duration(resp.GrantedTTL)*time.Second, time.Second)
		case resp.TTL < 0 && l.mayHaveEnded(time.Now()):
		case remaining > l.ttl:
			b.t.Errorf("lease %x has %v left of %v", id, remaining, l.ttl)
		case remaining+time.Second < l.ttl-elapsed: // the server answers in whole seconds
			b.t.Errorf("lease %x has %v left of %v, but was acknowledged %v ago", id, remaining, l.ttl, elapsed)
		}
	}
}

func (b *ledger) summary() string {
	return fmt.Sprintf("acknowledged %d puts, %d deletes, %d grants, %d renewals, %d revocations; %d answers did not come; %d leases expired; now at revision %d",
		b.puts, b.deletes, b.grants, b.renewals, b.revocations, b.unknown, b.expiries, b.newest)
}

// mustHaveTriedEverything fails a run in which some kind of event was too rare.
func (b *ledger) mustHaveTriedEverything() {
	for what, n := range map[string]int{
		"puts": b.puts, "deletes": b.deletes, "grants": b.grants, "renewals": b.renewals,
		"revocations": b.revocations, "answers that did not come": b.unknown, "expiries": b.expiries,
	} {
		if n < killRounds/10 {
			b.t.Errorf("only %d %s in %d rounds", n, what, killRounds)
		}
	}
}
