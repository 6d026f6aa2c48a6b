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

// overstayLimit is how much later than it must a short lease may be found ended: this machine may be busy.
const overstayLimit = 3 * time.Second

// ledger is what clients together know about a server: what was acknowledged, and what they asked for
// without an answer.
type ledger struct {
	t  *testing.T
	mu sync.Mutex

	keys      map[string]*keyRecord
	leases    map[int64]*leaseRecord
	revisions map[int64]string // which write made it
	newest    int64            // the highest revision acknowledged
	term      uint64

	unknownGrants int // under ids of the server's choice, not settled yet

	puts, deletes, grants, renewals, revocations, unknown, expiries int
}

// keyRecord is what is known of one key.
type keyRecord struct {
	value    *string // nil if it is not there
	revision int64   // 0 if not known
	lease    int64

	pending      bool // somebody asked for the following and has no answer
	pendingValue *string
	pendingLease int64
}

type leaseState int

const (
	leasePending  leaseState = iota // asked for, under an id of the client's choice
	leaseAlive                      // acknowledged
	leaseRevoking                   // acknowledged, and its end was asked for
	leaseEnded                      // acknowledged, or seen
)

// leaseRecord is what is known of one lease.
type leaseRecord struct {
	state leaseState
	ttl   time.Duration // 0 if not known
	since time.Time     // just before the request was sent that was acknowledged last
	// counts is when, at the latest, a server counts that knew no renewal of it: the first check after the
	// grant. Zero before.
	counts time.Time
	looked bool // asked for its remaining time since it was last acknowledged
}

func (l *leaseRecord) isShort() bool { return l.ttl > 0 && l.ttl < longTTL*time.Second }

// mayHaveEnded says whether a lease that nobody revoked may be gone by now.
func (l *leaseRecord) mayHaveEnded(now time.Time) bool {
	return l.isShort() && now.After(l.since.Add(l.ttl))
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, keys: make(map[string]*keyRecord), leases: make(map[int64]*leaseRecord), revisions: make(map[int64]string)}
}

// writing notes a write that is about to be asked for, and returns the revision that it must exceed.
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

// written notes that it was acknowledged. With a negative floor it made no revision.
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

// refused notes an answer that did not come, or that came as an error, and returns whether to go on. What
// was asked for stays pending until the next check.
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

// check compares a server that was just restarted with what is known, and settles what was pending. If
// thorough, it asks for the remaining time of every lease, not only of those that were just acknowledged.
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
				b.t.Errorf("lease %x has ended and is there again", id)
			}
		case leaseAlive:
			b.checkAlive(ctx, c, id, l, found, ready)
		}
	}
	for id := range there {
		if b.leases[id] == nil {
			// It belongs to a grant whose answer did not come.
			b.unknownGrants--
			b.leases[id] = &leaseRecord{state: leaseAlive}
			if b.unknownGrants < 0 {
				b.t.Errorf("nobody asked for lease %x", id)
			}
		}
	}
	b.unknownGrants = 0
}

// checkAlive looks at a lease that was acknowledged and not revoked.
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
	// Restarts do not prolong it again and again.
	for due := l.counts.Add(l.ttl); found && time.Now().After(due); found = b.listLeases(ctx, c)[id] {
		if late := time.Since(due); late > overstayLimit {
			b.t.Errorf("lease %x is still there, %v after it had to end", id, late)
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
			b.t.Errorf("nobody put %s", kv.Key)
		}
	}
	for key, k := range b.keys {
		b.checkKey(key, k, there[key])
	}
}

// checkKey compares a key with what is there, and settles what was pending.
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
			b.t.Errorf("%s is there, but its lease %x has ended", key, k.lease)
		}
		*k = keyRecord{}
	case k.value != nil && l != nil && there == nil && l.mayHaveEnded(time.Now()):
		l.state = leaseEnded // since the leases were listed
		b.expiries++
		*k = keyRecord{}
	case !matches(there, k.value):
		b.t.Errorf("%s is %v, but acknowledged is %s at revision %d", key, there, inWords(k.value), k.revision)
	case there != nil && (there.ModRevision != k.revision || there.Lease != k.lease):
		b.t.Errorf("%s has revision %d and lease %x, but acknowledged are %d and %x", key, there.ModRevision, there.Lease, k.revision, k.lease)
	}
}

// settle notes that a write without an answer has taken effect.
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
			b.t.Errorf("%s is there, but its lease %x has ended", key, k.pendingLease)
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

// checkRemaining asks for the remaining time of leases that are alive.
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
			// The answer to its grant did not come, so no time was promised. If it is a short one, it
			// may have ended just now.
			l.ttl = max(time.Duration(resp.GrantedTTL)*time.Second, time.Second)
		case resp.TTL < 0 && l.mayHaveEnded(time.Now()):
		case remaining > l.ttl:
			b.t.Errorf("lease %x has %v left of %v", id, remaining, l.ttl)
		case remaining+time.Second < l.ttl-elapsed: // what is told is whole seconds
			b.t.Errorf("lease %x has %v left of %v, but was acknowledged %v ago", id, remaining, l.ttl, elapsed)
		}
	}
}

func (b *ledger) summary() string {
	return fmt.Sprintf("acknowledged %d puts, %d deletes, %d grants, %d renewals, %d revocations; %d answers did not come; %d leases expired; now at revision %d",
		b.puts, b.deletes, b.grants, b.renewals, b.revocations, b.unknown, b.expiries, b.newest)
}

// mustHaveTriedEverything fails a run that proves nothing.
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
