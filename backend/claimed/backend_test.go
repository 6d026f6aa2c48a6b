package claimed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// running is a pair of clocks that run with Go's time, and so with a bubble's, from an origin of their own.
type running struct {
	start  time.Time
	origin clock.Instant
}

func (r running) Now() clock.Instant { return r.origin.Add(time.Since(r.start)) }

func (running) Moved() <-chan struct{} { return nil }

// machines makes the options of clients on unrelated machines: the clocks of each have other origins, and so
// have the two clocks of one machine.
func machines() func() claim.Options {
	var n atomic.Int64
	return func() claim.Options {
		i := n.Add(1)
		return claim.Options{
			Domain: clock.Domain(fmt.Sprint("machine-", i)),
			Clock:  running{time.Now(), clock.Instant{}.Add(time.Duration(i) * 1000 * time.Hour).Add(time.Duration(i%3) * time.Hour)},
		}
	}
}

// oneMachine makes the options of clients on the same machine.
func oneMachine() func() claim.Options {
	o := claim.Options{Domain: "machine", Clock: running{time.Now(), clock.Instant{Raw: 1e15, Boot: 3e15}}}
	return func() claim.Options { return o }
}

// backendOn returns a backend that the caller closes.
func backendOn(t testing.TB, s claim.Store, o ...claimed.Option) *claimed.Backend {
	t.Helper()
	b, err := claimed.New(s, o...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// remove removes a record as an operator should who wants tokens to keep growing: it raises the floor first.
func remove(t testing.TB, s claim.Store, name string) {
	ctx := context.Background()
	f, err := s.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RaiseFloor(ctx, f.Record.Token); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Remove(ctx, name, f.Record.Op); !done || err != nil {
		t.Fatal(done, err)
	}
}

func TestBackendPassesTheSuite(t *testing.T) {
	for _, c := range []struct {
		name   string
		domain func() func() claim.Options
		judges bool
		hide   func(claim.Store) claim.Store
		poll   time.Duration
	}{
		{name: "OnOneMachine", domain: oneMachine},
		{name: "OnMachinesOfTheirOwn", domain: machines},
		{name: "OnAStoreThatCanDoTheLeast", domain: machines, hide: claimtest.Plain, poll: 50 * time.Millisecond},
		{name: "ByTheClockOfTheStore", domain: machines, judges: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			backendtest.Run(t, backendtest.Config{
				Bubble: true,
				Cannot: []string{backend.Transfer, backend.Prefer},
				New: func(t testing.TB) backendtest.Store {
					m, next := claimtest.NewMemory(), c.domain()
					open := func(t testing.TB) claim.Store {
						s, err := m.OpenNamespace("jobs", c.judges)
						if err != nil {
							t.Fatal(err)
						}
						return s
					}
					return backendtest.Store{
						Open: func(t testing.TB) backend.Backend {
							s := open(t)
							if c.hide != nil {
								s = c.hide(s)
							}
							o := []claimed.Option{claimed.WithOptions(next())}
							if c.poll > 0 {
								o = append(o, claimed.WithPoll(c.poll))
							}
							return backendOn(t, s, o...)
						},
						Delete: func(t testing.TB, name string) { remove(t, open(t), name) },
					}
				},
			})
		})
	}
}

// The suite passes by the machine's own clocks, too.
func TestBackendPassesTheSuiteInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("sleeps")
	}
	current := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, current) })
	backendtest.Run(t, backendtest.Config{
		Cannot: []string{backend.Transfer, backend.Prefer},
		New: func(testing.TB) backendtest.Store {
			m := claimtest.NewMemory()
			return backendtest.Store{
				Open:   func(t testing.TB) backend.Backend { return backendOn(t, m.Open()) },
				Delete: func(t testing.TB, name string) { remove(t, m.Open(), name) },
			}
		},
	})
}
