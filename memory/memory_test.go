package memory_test

import (
	"go.uber.org/goleak"
	"testing"

	"github.com/leasekeeper/leasekeeper/driver"
	"github.com/leasekeeper/leasekeeper/driver/drivertest"
	"github.com/leasekeeper/leasekeeper/memory"
)

func TestBehaviour(t *testing.T) {
	drivertest.Run(t, drivertest.Config{
		Bubble: true,
		New: func(testing.TB) drivertest.Store {
			s := memory.New(memory.WithClock(memory.NewRunningClock()))
			return drivertest.Store{
				Open:   func(testing.TB) driver.Backend { return s.Backend() },
				Delete: func(_ testing.TB, name string) { s.Delete(name) },
			}
		},
	})
}

// The same by the machine's own clocks.
func TestBehaviourInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("sleeps")
	}
	drivertest.Run(t, drivertest.Config{
		New: func(testing.TB) drivertest.Store {
			s := memory.New()
			return drivertest.Store{
				Open:   func(testing.TB) driver.Backend { return s.Backend() },
				Delete: func(_ testing.TB, name string) { s.Delete(name) },
			}
		},
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
