package remote_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/backend/remote"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server"
)

type (
	proxy  = endpointstest.Proxy
	store  = endpointstest.Store
	faults = endpointstest.Faults
	fault  = endpointstest.Fault
)

const (
	waitLimit = endpointstest.WaitLimit
	usualTTL  = endpointstest.TTL

	pass, lose, unsent = endpointstest.Pass, endpointstest.Lose, endpointstest.Unsent
)

// The helpers that the tests of this package use most.
var (
	ok, is, eventually, limited = endpointstest.OK, endpointstest.Is, endpointstest.Eventually, endpointstest.Limited
	unique, newClaim            = endpointstest.Unique, endpointstest.NewClaim
	hold, enqueue, renew        = endpointstest.Hold, endpointstest.Enqueue, endpointstest.Renew

	startOwn, startProxy = endpointstest.Start, endpointstest.StartProxy
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startStore starts a server in this process.
func startStore(t testing.TB) *store {
	return startOwn(t, server.Config{MaxTTL: lessor.MaxTTL}) // the limit of the backend
}

// open returns a backend on some endpoints, without a namespace.
func open(t testing.TB, endpoints ...string) *remote.Backend {
	t.Helper()
	return openWith(t, remote.Config{Endpoints: endpoints})
}

func openWith(t testing.TB, cfg remote.Config) *remote.Backend {
	t.Helper()
	b, err := remote.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(limited(t)); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return b
}

func TestBackendPassesTheSuite(t *testing.T) {
	s := startStore(t)
	for _, namespace := range []string{"", "some/namespace"} {
		t.Run("namespace "+namespace, func(t *testing.T) {
			t.Parallel()
			behaves(t, s, namespace)
		})
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		clusterBehaves(t)
	})
}

func behaves(t *testing.T, s *store, namespace string) {
	backendtest.Run(t, backendtest.Config{New: func(testing.TB) backendtest.Store {
		return backendtest.Store{
			Open: func(t testing.TB) backend.Backend {
				b, err := backend.Open(t.Context(), "leasekeeper://"+s.Addr+"/"+namespace)
				ok(t, err)
				return b
			},
			Delete: func(_ testing.TB, name string) {
				s.DeleteOwner(strings.TrimPrefix(namespace+"/"+name, "/"))
			},
		}
	}})
}

func TestMarksAreListedInPages(t *testing.T) {
	s := startStore(t)
	endpointstest.ListMarksInPages(t, openWith(t, remote.Config{Endpoints: []string{s.Addr}}))
}

func TestLocksOfOtherProgramsAreListed(t *testing.T) {
	s := startStore(t)
	for _, namespace := range []string{"", "some/space"} {
		endpointstest.ListForeignLocks(t, s, openWith(t, remote.Config{Endpoints: []string{s.Addr}, Namespace: namespace}))
	}
}
