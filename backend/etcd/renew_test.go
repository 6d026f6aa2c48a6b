package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

// keyOf is the key of a lease.
func keyOf(t testing.TB, l backend.Lease) string {
	t.Helper()
	key, _, err := etcd.Key(l)
	ok(t, err)
	return string(key)
}

func idOf(t testing.TB, l backend.Lease) int64 {
	t.Helper()
	id, err := etcd.LeaseID(l)
	ok(t, err)
	return id
}

// A lease whose key is gone, or no longer attached to it, is lost at the next renewal, though etcd still renews the lease.
func TestRenewalOfALeaseWithoutItsKeyIsLost(t *testing.T) {
	s := startStore(t)
	for what, harm := range map[string]func(key string, id int64){
		"deleted":          func(key string, _ int64) { s.Delete(key) },
		"made again":       func(key string, id int64) { s.Delete(key); s.Put(key, "", id) },
		"detached":         func(key string, _ int64) { s.Put(key, "", 0) },
		"bound to another": func(key string, _ int64) { s.Put(key, "", s.Grant(60)) },
		"ended with lease": func(_ string, id int64) { s.Revoke(id) },
	} {
		t.Run(what, func(t *testing.T) {
			b := open(t, s.Addr)
			l, _ := hold(t, b, unique("harmed"))
			other, _ := hold(t, b, unique("other"))
			harm(keyOf(t, l), idOf(t, l))
			got := make(map[int]backend.Renewal)
			ok(t, b.Renew(limited(t), []backend.Lease{other, l, other}, func(i int, r backend.Renewal) { got[i] = r }))
			if is(t, got[1].Err, backend.ErrLost); got[0].Err != nil || got[2].Err != nil || got[0].TTL != usualTTL || len(got) != 3 {
				t.Errorf("%+v", got)
			}
			s.Delete(keyOf(t, l))
		})
	}
}

// Another program overwrites the value of the key: the lease is renewed all the same.
func TestRenewIgnoresTheValue(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	l, _ := hold(t, b, unique("value"))
	s.Put(keyOf(t, l), "something", idOf(t, l))
	if r := renew(t, b, l); r.Err != nil {
		t.Error(r.Err)
	}
	is(t, b.Announce(limited(t), l, "x"), backend.ErrCorrupt)
}

// If a member does not know a lease whose key is there, the lease is not lost.
func TestRenewDoesNotBelieveAMemberAlone(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	l, _ := hold(t, b, unique("disbelieved"))
	other, _ := hold(t, b, unique("other"))
	f.Answers(func(_ string, msg any) {
		if r, ok := msg.(*pb.LeaseKeepAliveResponse); ok && r.ID == idOf(t, l) {
			r.TTL = 0
		}
	})
	got := make(map[int]backend.Renewal)
	ok(t, b.Renew(limited(t), []backend.Lease{l, other}, func(i int, r backend.Renewal) { got[i] = r }))
	is(t, got[0].Err, backend.ErrUnavailable)
	ok(t, got[1].Err)
}

// The backend reports the TTL that etcd granted.
func TestRenewReportsTheGrantedTTL(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	l, _ := hold(t, b, unique("ttl"))
	f.Answers(func(_ string, msg any) {
		if r, ok := msg.(*pb.LeaseKeepAliveResponse); ok {
			r.TTL = 7
		}
	})
	if r := renew(t, b, l); r.Err != nil || r.TTL != 7*time.Second {
		t.Errorf("%+v", r)
	}
}

// etcd answers the requests on a stream in order, and may be stuck at one lease. The others are renewed all the same.
func TestStuckLeaseDoesNotBlockOtherRenewals(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	var leases []backend.Lease
	for i := range 10 {
		l, _ := hold(t, b, unique(fmt.Sprint("many/", i)))
		leases = append(leases, l)
	}
	stuck := map[int64]bool{idOf(t, leases[0]): true, idOf(t, leases[4]): true}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The requests behind the stuck one on its stream receive no answer either.
	f.Sends(func(_ string, msg any) error {
		if r, ok := msg.(*pb.LeaseKeepAliveRequest); ok && stuck[r.ID] {
			return errors.New("the member reads no further")
		}
		return nil
	})
	var mu sync.Mutex
	got := make(map[int]backend.Renewal)
	err := b.Renew(ctx, leases, func(i int, r backend.Renewal) {
		mu.Lock()
		defer mu.Unlock()
		if got[i] = r; len(got) == 8 {
			cancel()
		}
	})
	is(t, err, context.Canceled)
	for i := range leases {
		if r, reported := got[i]; reported == stuck[idOf(t, leases[i])] || r.Err != nil {
			t.Errorf("lease %d: %v, %+v", i, reported, r)
		}
	}
}

// More leases than fit into one transaction, or into the window of a stream.
func TestManyLeasesAreRenewedInFewRequests(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	const many = 1000
	leases := make([]backend.Lease, many)
	var all sync.WaitGroup
	prefix := unique("many")
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < many; i += 8 {
				l, _, err := b.Claim(limited(t), newClaim(fmt.Sprint(prefix, "/", i), true))
				if err != nil {
					t.Error(err)
					return
				}
				leases[i] = l
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for i := 0; i < many; i += 7 {
		s.Delete(keyOf(t, leases[i]))
	}
	f.Set(nil)
	reported := make([]int, many)
	ok(t, b.Renew(limited(t), leases, func(i int, r backend.Renewal) {
		if reported[i]++; (i%7 == 0) != errors.Is(r.Err, backend.ErrLost) || i%7 != 0 && r.Err != nil {
			t.Errorf("lease %d: %+v", i, r)
		}
	}))
	for i, n := range reported {
		if n != 1 {
			t.Errorf("lease %d was reported %d times", i, n)
		}
	}
	for method, n := range f.Calls() {
		if n > many/10 {
			t.Errorf("%d requests %s for %d leases", n, method, many)
		}
		if strings.HasSuffix(method, "LeaseKeepAlive") && n > 2 {
			t.Errorf("%d streams", n)
		}
	}
	for _, l := range leases {
		ok(t, b.Release(limited(t), l))
	}
}

// Renew reports nothing after it has returned, and each lease once although it is answered twice.
func TestEachRenewalIsReportedOnce(t *testing.T) {
	s := startStore(t)
	f := new(faults)
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: f.Options()})
	one, _ := hold(t, b, unique("one"))
	two, _ := hold(t, b, unique("two"))
	// The first answer comes again in place of the second one. Then comes an answer to no request.
	var answers int
	f.Answers(func(_ string, msg any) {
		if r, ok := msg.(*pb.LeaseKeepAliveResponse); ok {
			switch answers++; answers {
			case 2:
				r.ID = idOf(t, one)
			case 3:
				r.ID = 1 // no request
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	reported := make(map[int]int)
	if err := b.Renew(ctx, []backend.Lease{one, two}, func(i int, r backend.Renewal) { reported[i]++ }); err != nil || reported[0] != 1 || reported[1] != 1 {
		t.Errorf("%v, %v", reported, err)
	}
}
