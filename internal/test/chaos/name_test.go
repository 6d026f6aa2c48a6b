//go:build linux

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/etcd"
	_ "github.com/leasekeeper/leasekeeper/backend/remote"
)

// keepers is the number of competing keepers. Half of them use our own service, and half are clients of etcd's API.
const keepers = 4

const nameTTL = 2 * time.Second

// contended are the names that the keepers compete for.
var contended = []string{"jobs/one", "jobs/two"}

// tenure is the time in which a keeper knew that it held a name. It is no longer than the real tenure.
type tenure struct {
	keeper   int
	from, to time.Time
	token    leasekeeper.Token
	lost     bool
}

// tenures collects the tenures of all names. mu guards byName.
type tenures struct {
	mu     sync.Mutex
	byName map[string][]tenure
}

func newTenures() *tenures { return &tenures{byName: make(map[string][]tenure)} }

func (n *tenures) add(name string, one tenure) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byName[name] = append(n.byName[name], one)
}

// judge checks that no two tenures of a name overlap, and that tokens grow.
func (n *tenures) judge(t testing.TB, hadTime bool) {
	for _, name := range contended {
		all, lost := n.byName[name], 0
		slices.SortFunc(all, func(a, b tenure) int { return a.from.Compare(b.from) })
		for i, one := range all {
			if one.lost {
				lost++
			}
			if i == 0 {
				continue
			}
			before := all[i-1]
			if one.from.Before(before.to) {
				t.Errorf("%s: keeper %d held it with token %d until %v after keeper %d got it with token %d",
					name, before.keeper, before.token, before.to.Sub(one.from), one.keeper, one.token)
			}
			if one.token <= before.token {
				t.Errorf("%s: keeper %d has the token %d, after %d of keeper %d", name, one.keeper, one.token, before.token, before.keeper)
			}
		}
		t.Logf("%s was held %d times, and lost %d times", name, len(all), lost)
		if hadTime && len(all) < keepers {
			t.Errorf("%s was held only %d times", name, len(all))
		}
	}
}

// keepNames acquires one name after the other, until the end.
func (l *load) keepNames(number int) {
	scheme := []string{"leasekeeper", "etcd"}[number%2]
	var endpoints []string
	for i := range l.g.reach {
		endpoints = append(endpoints, l.g.net.endpoint((number+i)%l.g.reach))
	}
	k, err := leasekeeper.Open(context.Background(), scheme+"://"+strings.Join(endpoints, ",")+"/", leasekeeper.WithTTL(nameTTL))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		if err := k.Shutdown(ctx); err != nil {
			l.t.Errorf("closing a keeper: %v", err)
		}
	}()
	for !l.over() {
		l.keepName(k, number, contended[rand.IntN(len(contended))])
		l.pause(time.Duration(rand.IntN(60)) * time.Millisecond)
	}
}

// isFault reports whether a fault explains a keeper's error.
func isFault(err error) bool {
	return errors.Is(err, leasekeeper.ErrUnknownOutcome) || errors.Is(err, leasekeeper.ErrUnavailable)
}

// keepName holds a name once.
func (l *load) keepName(k *leasekeeper.Keeper, number int, name string) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	lease, err := k.Acquire(ctx, name)
	for ; isFault(err) && ctx.Err() == nil; lease, err = k.Acquire(ctx, name) {
		l.tally.retries.Add(1) // a keeper tries for a TTL, and a fault may last longer
	}
	l.lasted("a claim", began)
	switch {
	case err != nil && ctx.Err() != nil:
		return // it waited in the queue all the time
	case err != nil:
		l.t.Errorf("keeper %d: %s was not acquired after %v: %v", number, name, time.Since(began), err)
		return
	}
	one := tenure{keeper: number, from: time.Now(), token: lease.Token()}
	one.to = one.from
	long := 100 * time.Millisecond
	if rand.IntN(5) == 0 {
		long = nameTTL // across the next faults
	}
	for until := one.from.Add(rand.N(long)); time.Now().Before(until) && !one.lost; {
		time.Sleep(2 * time.Millisecond)
		looked := time.Now()
		if one.lost = lease.Check() != nil; !one.lost {
			one.to = looked
		}
	}
	l.names.add(name, one)
	began = time.Now()
	err = lease.Release(ctx)
	l.lasted("a release", began)
	// A release is tried only until the lease ends, and a fault may last longer.
	if err != nil && !errors.Is(err, leasekeeper.ErrLost) && !isFault(err) {
		l.t.Errorf("keeper %d: %s was not released: %v", number, name, err)
	}
}
