package permit

import (
	"fmt"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// BenchmarkRenewals measures the check of one renewal: of a lease without keys and of one with a thousand, the first time under
// a policy and later. Later it must not depend on the number of keys.
func BenchmarkRenewals(b *testing.B) {
	const leases = 40_000
	p := policy(b)
	for _, keys := range []int{0, 1000} {
		l := &table{items: make(map[lessor.ID][]lessor.Item)}
		var items []lessor.Item
		for i := range keys {
			items = append(items, lessor.Item{Key: fmt.Sprint("a/", i)})
		}
		for id := range lessor.ID(leases) {
			l.items[id+1] = items
		}
		check := func(b *testing.B, r *Renewals, i int) {
			if err := r.Check(p, "all", lessor.ID(i%leases+1), l); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(fmt.Sprintf("keys=%d/first", keys), func(b *testing.B) {
			for i := range b.N {
				check(b, new(Renewals), i)
			}
		})
		b.Run(fmt.Sprintf("keys=%d/later", keys), func(b *testing.B) {
			r := new(Renewals)
			for i := range leases {
				check(b, r, i)
			}
			b.ResetTimer()
			for i := range b.N {
				check(b, r, i)
			}
		})
	}
	b.Run("no access", func(b *testing.B) {
		off, err := p.Apply(access.Disable{})
		if err != nil {
			b.Fatal(err)
		}
		r := new(Renewals)
		for i := range b.N {
			if err := r.Check(off, "all", lessor.ID(i%leases+1), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
