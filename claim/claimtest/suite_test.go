package claimtest_test

import (
	"testing"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

const otherBoot clock.Domain = "an earlier boot"

func TestMemory(t *testing.T) {
	m := claimtest.NewMemory(claimtest.WithGone(func(d clock.Domain) bool { return d == otherBoot }))
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			return m.OpenNamespace(namespace, storeClock)
		},
		Damage:    func(t testing.TB, namespace, name string) { m.Damage(namespace, name) },
		OtherBoot: otherBoot,
	})
}
