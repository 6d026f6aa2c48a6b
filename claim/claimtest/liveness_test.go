package claimtest_test

import (
	"context"
	"errors"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// takeAll checks, when all processes are dead, that their leases are taken in time: by a live observer, or by
// one process after another of one machine, each of which tries once.
func (w *world) takeAll() {
	const interval = time.Second
	for i, name := range worldNames {
		lives := (w.seed+uint64(i))%2 == 0
		m := newMachine(w.Rand, clock.Domain("observer of "+name), w.began, 10*worldLength, worldDrift, steady)
		c := w.observer(m)
		if err := c.Unpin(context.Background(), name, ""); err != nil {
			w.fail("unpin: %v", err)
		}
		f, err := w.direct.Get(context.Background(), name)
		if err != nil {
			w.fail("%v", err)
		}
		span := f.Record.Written.Until(f.Record.Expiry)
		if span > time.Minute {
			w.fail("%s: with TTLs of up to 22s a lease was promised for %v", name, span)
		}
		drift := clock.Drift(worldDrift)
		bound := drift.GrantPromise(drift.WaitRemote(span)) + 2*interval
		for began := time.Now(); ; time.Sleep(interval) {
			if !lives {
				c = w.observer(m)
			}
			l, err := c.Claim(context.Background(), claim.Request{
				Name: name, ID: newID(w.Rand), Holder: backend.Holder{ID: "observer"}, TTL: time.Minute, Waits: lives && i == 0,
			})
			if err == nil {
				w.acquired(&tenure{name: name, lease: l, machine: m, who: "observer"})
				break
			}
			if !errors.Is(err, backend.ErrHeld) || time.Since(began) > bound {
				w.fail("%s was not taken %v after its holder of %v died: %v", name, time.Since(began), span, err)
				break
			}
		}
		w.count("taken")
	}
	w.finish()
}

// observer returns a client of a new process, without faults.
func (w *world) observer(m *machine) *claim.Client {
	c, err := claim.NewClient(&watched{w.open(), w}, claim.Options{Clock: m, Domain: m.domain, Drift: worldDrift})
	if err != nil {
		panic(err)
	}
	return c
}
