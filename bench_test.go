package leasekeeper_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// BenchmarkAcquireRelease measures a keeper on a store in memory, while it holds a number of other leases.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, held := range []int{0, 10_000} {
		b.Run(fmt.Sprint("held=", held), func(b *testing.B) {
			k := benched(b, held)
			b.ReportAllocs()
			for b.Loop() {
				l, err := k.Acquire(b.Context(), "x")
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	k := benched(b, 0)
	l, err := k.Acquire(b.Context(), "x")
	if err != nil {
		b.Fatal(err)
	}
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if l.Check() != nil {
				b.Error("lost")
			}
		}
	})
}

func benched(b *testing.B, held int) *leasekeeper.Keeper {
	k, err := leasekeeper.New(memory.New().Backend(), leasekeeper.WithTTL(time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := k.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
	})
	for i := range held {
		if _, err := k.Acquire(b.Context(), fmt.Sprint("held/", i)); err != nil {
			b.Fatal(err)
		}
	}
	return k
}
