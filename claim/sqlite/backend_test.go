package sqlite

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/driver"
	"github.com/leasekeeper/leasekeeper/driver/drivertest"
)

func TestBackend(t *testing.T) {
	drivertest.Run(t, drivertest.Config{
		Cannot: []string{driver.Transfer},
		TTL:    2 * time.Second,
		Slack:  3 * time.Second,
		New: func(t testing.TB) drivertest.Store {
			path := newPath(t)
			return drivertest.Store{
				Open: func(t testing.TB) driver.Backend {
					b, err := driver.Open(t.Context(), "sqlite:"+path)
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
				Delete: func(t testing.TB, name string) { remove(t, opened(t, path, Config{}), name) },
			}
		},
	})
}
