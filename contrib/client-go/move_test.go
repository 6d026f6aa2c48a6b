//go:build unix

package clientgolease_test

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

func init() { runTests = databases.Main }

// The programs of docs/compare/client-go.md, in the order of the page.
const (
	today = iota // leads in Kubernetes
	both         // leads in Kubernetes and holds the lease
	fresh        // holds the lease
)

// tries is how long a test lets a program ask the store for the lease, which PostgreSQL does not show.
const tries = time.Second

var programNames = [...]string{today: "today", both: "both", fresh: "lease only"}

// Two programs that are in use at the same time during the change exclude each other. The first and the last one do
// not, which is why there is one between them.
func TestProgramsOfTheChangeFromLeaseLockNeverMeet(t *testing.T) {
	programs := pageprogram.Build(t, "../../docs/compare/client-go.md", len(programNames), t.TempDir())
	for first := range programs {
		for second := range programs {
			t.Run(programNames[first]+" works, "+programNames[second]+" waits", func(t *testing.T) {
				t.Parallel()
				c := newChange(t)
				one := c.fleet.Start("the first", programs[first], c.env...)
				one.Works()
				two := c.fleet.Start("the second", programs[second], c.env...)
				if first-second > 1 || second-first > 1 {
					two.Overlaps()
					one.Finish()
					return
				}
				two.Await("the leader is ")
				if first == fresh && second == both {
					time.Sleep(tries) // the second one leads in Kubernetes, and then asks the store for the lease
				}
				one.Finish()
				two.Works()
				two.Finish()
			})
		}
	}
}

// change is a cluster and a store, with the processes of a change.
type change struct {
	fleet *pageprogram.Fleet
	env   []string
}

func newChange(t *testing.T) change {
	t.Helper()
	store := databases.PostgreSQL(t).Database(t)
	return change{fleet: pageprogram.NewFleet(t), env: []string{"KUBECONFIG=" + startKubernetes(t), "LEASEKEEPER_STORE=" + store}}
}
