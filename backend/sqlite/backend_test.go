package sqlite

import (
	"runtime"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
)

func TestBackendPassesTheSuite(t *testing.T) {
	cannot := []string{backend.Transfer}
	if runtime.GOOS != "linux" { // there are no queues
		cannot = append(cannot, backend.Prefer)
	}
	backendtest.Run(t, backendtest.Config{
		Cannot: cannot,
		TTL:    2 * time.Second,
		Slack:  3 * time.Second,
		New: func(t testing.TB) backendtest.Store {
			path := newPath(t)
			return backendtest.Store{
				Open: func(t testing.TB) backend.Backend {
					b, err := backend.Open(t.Context(), "sqlite:"+path)
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
				Delete: func(t testing.TB, name string) { mustRemove(t, opened(t, path, Config{}), name) },
			}
		},
	})
}
