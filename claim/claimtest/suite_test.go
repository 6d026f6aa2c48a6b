package claimtest_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

const otherBoot clock.Domain = "an earlier boot"

// memory returns a Config for a store in memory, as wrap shows it.
func memory(wrap func(claim.Store) claim.Store) claimtest.Config {
	m := claimtest.NewMemory(claimtest.WithGone(func(d clock.Domain) bool { return d == otherBoot }))
	return claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			c, err := m.OpenNamespace(namespace, storeClock)
			if err != nil {
				return nil, err
			}
			return wrap(c), nil
		},
		Damage:    func(t testing.TB, namespace, name string) { m.Damage(namespace, name) },
		OtherBoot: otherBoot,
		Cannot:    []string{claimtest.Queue},
	}
}

func TestMemoryPassesTheSuite(t *testing.T) {
	claimtest.Run(t, memory(func(s claim.Store) claim.Store { return s }))
}

// A store without optional abilities passes as well.
func TestPlainStorePassesTheSuite(t *testing.T) {
	c := memory(claimtest.Plain)
	c.Cannot = []string{claimtest.Batch, claimtest.Gather, claimtest.Bound, claimtest.Notify, claimtest.Judge, claimtest.Local, claimtest.Clocks, claimtest.Queue}
	claimtest.Run(t, c)
}

// A network that is only slow breaks no promise of a store.
func TestStoreOverASlowNetworkPassesTheSuite(t *testing.T) {
	claimtest.Run(t, memory(func(s claim.Store) claim.Store {
		n := claimtest.Faulty(s)
		n.Plan(func(claimtest.Call) claimtest.Fault {
			return claimtest.Fault{Delay: time.Duration(rand.IntN(1e6)), Back: time.Duration(rand.IntN(1e6))}
		})
		return n
	}))
}
