package etcd_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/server"
)

type (
	proxy  = endpointstest.Proxy
	store  = endpointstest.Store
	faults = endpointstest.Faults
	fault  = endpointstest.Fault
)

const (
	usualTTL = endpointstest.TTL

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

// endpoint and etcdctl let the same tests run against a real etcd.
var (
	endpoint = flag.String("endpoint", "", "run against the etcd at this host:port, and not against a server of this process")
	etcdctl  = flag.String("etcdctl", "", "the path of etcdctl, for a test that runs it")
)

// startStore starts a server in this process, or connects to the etcd at -endpoint.
func startStore(t testing.TB) *store {
	t.Helper()
	if *endpoint != "" {
		return endpointstest.At(t, *endpoint)
	}
	return startOwn(t, server.Config{})
}

// open returns a backend on some endpoints, without a prefix.
func open(t testing.TB, endpoints ...string) *etcd.Backend {
	t.Helper()
	return openWith(t, etcd.Config{Endpoints: endpoints})
}

func openWith(t testing.TB, cfg etcd.Config) *etcd.Backend {
	t.Helper()
	b, err := etcd.New(cfg)
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
	for _, prefix := range []string{"", "some/prefix"} {
		t.Run("prefix "+prefix, func(t *testing.T) { behaves(t, s, prefix) })
	}
}

func behaves(t *testing.T, s *store, prefix string) {
	ttl, slack := 2*time.Second, time.Duration(0) // under the race detector a claim may take a second
	if *endpoint != "" {
		// etcd grants two seconds or more, and looks for ends twice a second.
		ttl, slack = 3*time.Second, 2*time.Second
	}
	backendtest.Run(t, backendtest.Config{
		TTL: ttl, Slack: slack,
		Cannot: []string{backend.History, backend.Pin, backend.Transfer, backend.Prefer},
		New: func(testing.TB) backendtest.Store {
			return backendtest.Store{
				Open: func(t testing.TB) backend.Backend {
					b, err := backend.Open(t.Context(), "etcd://"+s.Addr+"/"+prefix)
					ok(t, err)
					return b
				},
				Delete: func(_ testing.TB, name string) {
					s.DeleteOwner(strings.TrimPrefix(prefix+"/"+name, "/"))
				},
			}
		},
	})
}
