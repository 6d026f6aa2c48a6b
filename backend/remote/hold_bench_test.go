package remote_test

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkClaimReleaseOfMany claims and releases names from many goroutines over one stream. The sub-benchmark is the number
// of goroutines.
func BenchmarkClaimReleaseOfMany(b *testing.B) {
	for _, many := range []int{4, 16, 64, 512} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			s := startStore(b)
			r := open(b, s.Addr)
			l, _, err := r.Claim(b.Context(), newClaim("jobs/first", false)) // when it is answered, the server leads
			ok(b, err)
			ok(b, r.Release(b.Context(), l))
			b.ResetTimer()
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					name := fmt.Sprint("jobs/", i)
					for n := i; n < b.N; n += many {
						l, _, err := r.Claim(b.Context(), newClaim(name, false))
						if err == nil {
							err = r.Release(b.Context(), l)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}
