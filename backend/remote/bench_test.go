package remote_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
)

// BenchmarkRenew renews leases, one call after the other. The sub-benchmark is the number of leases in a call.
func BenchmarkRenew(b *testing.B) {
	s := startStore(b)
	r := open(b, s.Addr)
	const held = 10_000
	leases := manyLeases(b, r, held)
	for _, size := range []int{1, 100, held, 10 * held} {
		given := make([]backend.Lease, size)
		for i := range given {
			given[i] = leases[i%held]
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				reported := 0
				if err := r.Renew(b.Context(), given, func(_ int, n backend.Renewal) {
					if n.Err == nil {
						reported++
					}
				}); err != nil || reported != size {
					b.Fatal(reported, err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(size)/b.Elapsed().Seconds(), "ids/s")
		})
	}
}

// BenchmarkClaimRelease claims and releases one name.
func BenchmarkClaimRelease(b *testing.B) {
	s := startStore(b)
	r := open(b, s.Addr)
	for b.Loop() {
		l, _, err := r.Claim(b.Context(), newClaim("jobs/nightly", false))
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Release(b.Context(), l); err != nil {
			b.Fatal(err)
		}
	}
}

// An idle keeper sends one message per third of the TTL, for all its leases.
func TestKeeperRenewsAllLeasesInOneMessage(t *testing.T) {
	s := startStore(t)
	b, f := faulty(t, s)
	const ttl, many = 3 * time.Second, 2000
	k, err := leasekeeper.New(b, leasekeeper.WithTTL(ttl))
	ok(t, err)
	prefix := unique("idle")
	work := make(chan int)
	done := make(chan error)
	for range 64 {
		go func() {
			for i := range work {
				if _, err := k.Acquire(limited(t), fmt.Sprint(prefix, "/", i)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for i := range many {
		work <- i
	}
	close(work)
	for range 64 {
		ok(t, <-done)
	}
	// Leases that were acquired apart converge, and the keeper sends each up to an eighth of the TTL early.
	var messages, ids int64
	for range 10 {
		counted := new(tally)
		counted.on(f)
		time.Sleep(ttl)
		messages, ids = counted.messages.Load(), counted.ids.Load()
		if messages >= 2 && messages <= 4 && ids == messages*many {
			break
		}
	}
	if messages < 2 || messages > 4 || ids != messages*many {
		t.Errorf("%d messages with %d ids in one TTL", messages, ids)
	}
	// Releasing all of them takes longer than their TTL if the machine is busy.
	if err := k.Shutdown(limited(t)); err != nil && !errors.Is(err, backend.ErrUnknownOutcome) {
		t.Error(err)
	}
}
