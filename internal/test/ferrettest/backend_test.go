package ferrettest

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
	"github.com/leasekeeper/leasekeeper/claim"
)

// urlOf returns the URL with which a user would keep leases in a test's own database.
func urlOf(t testing.TB, uri, namespace string) string {
	t.Helper()
	address, query, _ := strings.Cut(uri, "?")
	scheme, rest, _ := strings.Cut(address, "://")
	host, path, _ := strings.Cut(rest, "/")
	if strings.Contains(host, "@") && !strings.Contains(query, "authSource=") { // otherwise the server would look for the user in that database
		query = strings.TrimPrefix(query+"&authSource="+cmp.Or(path, "admin"), "&")
	}
	return scheme + "://" + host + "/" + databaseOf(t, connect(t, uri)).Name() + "?" + strings.TrimPrefix(query+"&ns="+namespace, "&")
}

// behaviour runs the suite for backends on stores at uri, opened by URL.
func behaviour(t *testing.T, uri string) {
	backendtest.Run(t, backendtest.Config{
		Cannot: []string{backend.Transfer},
		TTL:    4 * time.Second,
		Slack:  4 * time.Second,
		New: func(t testing.TB) backendtest.Store {
			url := urlOf(t, uri, "jobs")
			return backendtest.Store{
				Open: func(t testing.TB) backend.Backend {
					b, err := backend.Open(t.Context(), url)
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
				Delete: func(t testing.TB, name string) {
					s, err := mongodb.Open(t.Context(), url, mongodb.Config{})
					if err != nil {
						t.Fatal(err)
					}
					mustRemove(t, s, name)
					if err := s.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
				},
			}
		},
	})
}

// mustRemove removes a record as an operator should who wants tokens to keep growing: it raises the floor
// first.
func mustRemove(t testing.TB, s claim.Store, name string) {
	t.Helper()
	f, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RaiseFloor(t.Context(), f.Record.Token); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Remove(t.Context(), name, f.Record.Op); !done || err != nil {
		t.Fatal(done, err)
	}
}

func TestBackendOnFerretDB(t *testing.T) { behaviour(t, Start(t).URI()) }

func TestBackendOnMongoDB(t *testing.T) { behaviour(t, mongod(t)) }
