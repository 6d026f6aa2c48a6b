package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/etcd"   // etcd://
	_ "github.com/leasekeeper/leasekeeper/backend/remote" // leasekeeper://
)

// lockTTL is the TTL of leases where renewals are not measured.
const lockTTL = 60 * time.Second

// A locker holds one name, again and again.
type locker interface {
	// Lock returns when the name is held.
	Lock(ctx context.Context) error
	// Unlock returns when the server has confirmed the release.
	Unlock(ctx context.Context) error
	// Check returns an error if the name is no longer held although it was not unlocked.
	Check() error
}

// users hold names with the same client library.
type users interface {
	locker(user int, name string) locker
	// close leaves what they hold to the end of the server, which is near.
	close()
}

// A plan says how many connections all users share, and how long leases live.
type plan struct {
	connections int
	ttl         time.Duration
}

// A library is one way to hold names on a server.
type library func(ctx context.Context, s *server, p plan) (users, error)

// ownLibrary is the one that comes with the server: concurrency.Mutex on etcd, a Keeper on ours.
func ownLibrary(ctx context.Context, s *server, p plan) (users, error) {
	if s.name == reference {
		return openSessions(ctx, s, p)
	}
	return openKeepers(ctx, s, "leasekeeper", p)
}

// throughEtcd is a Keeper that uses nothing but etcd's API, whatever the server.
func throughEtcd(ctx context.Context, s *server, p plan) (users, error) {
	return openKeepers(ctx, s, "etcd", p)
}

// keepers are one for each connection.
type keepers []*leasekeeper.Keeper

func openKeepers(ctx context.Context, s *server, scheme string, p plan) (users, error) {
	var opened keepers
	for range p.connections {
		k, err := leasekeeper.Open(ctx, storeURL(s, scheme), leasekeeper.WithTTL(p.ttl))
		if err != nil {
			opened.close()
			return nil, err
		}
		opened = append(opened, k)
	}
	return opened, nil
}

func storeURL(s *server, scheme string) string { return scheme + "://" + s.addr + "/bench" }

func (k keepers) locker(user int, name string) locker {
	return &keeperLocker{keeper: k[user%len(k)], name: name}
}

func (k keepers) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, keeper := range k {
		_ = keeper.Shutdown(ended) // its error says that leases are left
	}
}

// keeperLocker holds a name with a Keeper.
type keeperLocker struct {
	keeper *leasekeeper.Keeper
	name   string
	lease  *leasekeeper.Lease
	last   leasekeeper.Token
}

func (k *keeperLocker) Lock(ctx context.Context) (err error) {
	if k.lease, err = k.keeper.Acquire(ctx, k.name); err != nil {
		return err
	}
	if k.lease.Token() <= k.last {
		return fmt.Errorf("the token of %s was %d, then %d", k.name, k.last, k.lease.Token())
	}
	k.last = k.lease.Token()
	return nil
}

func (k *keeperLocker) Unlock(ctx context.Context) error { return k.lease.Release(ctx) }
func (k *keeperLocker) Check() error                     { return k.lease.Check() }

// lockUnlock measures how often users lock and unlock, each a name of its own.
func lockUnlock(open library, inFlight int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		opened, err := open(ctx, s, plan{min(inFlight, rateConnections), lockTTL})
		if err != nil {
			return nil, err
		}
		defer opened.close()
		p, err := locking(ctx, opened, s.cpuTime, z, inFlight)
		if err != nil {
			return nil, err
		}
		return p.withClient(goal), nil
	}
}

// locking has users lock and unlock, each a name of its own.
func locking(ctx context.Context, opened users, used func() time.Duration, z size, inFlight int) (pace, error) {
	return pacing(ctx, used, z, inFlight, func(ctx context.Context, worker int, count *atomic.Int64) error {
		own := opened.locker(worker, fmt.Sprintf("own/%d", worker))
		for {
			if err := own.Lock(ctx); err != nil {
				return err
			}
			if err := own.Unlock(ctx); err != nil {
				return err
			}
			count.Add(1)
		}
	})
}

// measured is the body of a scenario.
type measured func(ctx context.Context, s *server, z size) ([]figure, error)

// nameScenarios are about holding names with a client library: the one that comes with the server, and what
// we have for any that speaks etcd's API.
func nameScenarios(z size) []scenario {
	const suffix = ", on etcd://"
	var list []scenario
	add := func(rounds int, name string, own, onEtcd measured) {
		list = append(list,
			scenario{name: name, rounds: rounds, run: own},
			scenario{name: name + suffix, rounds: rounds, run: onEtcd})
	}
	number := func(n int) string { return thousands(float64(n)) }
	add(z.rounds, "acquire and release a name, 1 in flight", lockUnlock(ownLibrary, 1, "1x"), lockUnlock(throughEtcd, 1, ""))
	add(z.rounds, "acquire and release a name, 64 in flight", lockUnlock(ownLibrary, 64, "4x"), lockUnlock(throughEtcd, 64, ""))
	for _, n := range []int{2, 32} {
		add(z.rounds, fmt.Sprintf("hand-over of a name among %d", n), handOver(ownLibrary, n, n, "2"), handOver(throughEtcd, n, n, ""))
	}
	for _, ids := range []int{100, manyIDs} {
		name := fmt.Sprintf("renewed ids, in messages of %s", number(ids))
		list = append(list, scenario{name: name, rounds: z.rounds, run: renewedIDs(ids, "2 000 000")})
	}
	list = append(list, userScenarios(z)...)
	add(1, fmt.Sprintf("renewed ids through the client, %s in a call", number(z.backend)),
		backendRenewals(ownBackend, "2 000 000"), backendRenewals(etcdBackend, ""))
	add(1, fmt.Sprintf("%d idle clients with %s names in all", z.idleMany, number(z.idleMany*z.idleEach)),
		idle(ownLibrary, z.idleMany, z.idleEach, ""), idle(throughEtcd, z.idleMany, z.idleEach, ""))
	add(1, fmt.Sprintf("an idle client with %s names", number(z.idleOne)),
		idle(ownLibrary, 1, z.idleOne, "1"), idle(throughEtcd, 1, z.idleOne, ""))
	add(1, fmt.Sprintf("memory of %s names in the client", number(z.clientHeld)), clientMemory(ownLibrary), clientMemory(throughEtcd))
	return list
}
