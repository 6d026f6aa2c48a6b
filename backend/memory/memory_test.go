package memory_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

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

// A page of a long list costs what its own names cost, however many others there are.
func TestPageOfAListCostsItsLength(t *testing.T) {
	cost := func(names int) float64 {
		s := memory.New()
		b := s.Backend()
		for i := range names {
			claim := backend.Claim{Name: fmt.Sprintf("n/%d", i*7919%names), Holder: backend.Holder{ID: "me"}, TTL: time.Hour}
			claim.ID[0], claim.ID[1], claim.ID[2] = 1, byte(i), byte(i>>8)
			if _, _, err := b.Claim(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
		}
		return testing.AllocsPerRun(10, func() {
			page, err := b.List(t.Context(), "n/", "n/3", 20)
			if err != nil || len(page) != 20 || page[0].Name != "n/30" {
				t.Fatal(page, err)
			}
		})
	}
	if few, many := cost(100), cost(20_000); many > few {
		t.Errorf("a page of 20 names takes %v allocations among 100 names and %v among 20 000", few, many)
	}
}
