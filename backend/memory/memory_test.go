package memory_test

import (
	"go.uber.org/goleak"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func TestBackendPassesTheSuite(t *testing.T) {
	backendtest.Run(t, backendtest.Config{
		Bubble: true,
		New: func(testing.TB) backendtest.Store {
			s := memory.New(memory.WithClock(memory.NewRunningClock()))
			return backendtest.Store{
				Open:   func(testing.TB) backend.Backend { return s.Backend() },
				Delete: func(_ testing.TB, name string) { s.Delete(name) },
			}
		},
	})
}

// The suite passes by the machine's own clocks, too.
func TestBackendPassesTheSuiteInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("sleeps")
	}
	backendtest.Run(t, backendtest.Config{
		New: func(testing.TB) backendtest.Store {
			s := memory.New()
			return backendtest.Store{
				Open:   func(testing.TB) backend.Backend { return s.Backend() },
				Delete: func(_ testing.TB, name string) { s.Delete(name) },
			}
		},
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
