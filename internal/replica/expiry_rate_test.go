package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// overdue returns a world with that many leases whose time is up, and none of which has ended.
func overdue(t *testing.T, leases int) *world {
	w := newWorld(t).serve()
	var events []Event
	for id := 1; id <= leases; id++ {
		events = append(events, Request{ID: uint64(id), Command: entry.Grant{Lease: lessor.ID(id), TTL: time.Minute}})
	}
	w.step(events...)
	w.settle()
	w.clock.Advance(time.Minute)
	w.step(Tick{}) // which finds that it was paused, and holds back
	w.clock.Advance(TickInterval)
	if left := w.replica.Lessor().Len(); left != leases {
		t.Fatalf("%d leases of %d are left before any ends", left, leases)
	}
	w.clock.Advance(time.Nanosecond)
	return w
}

// While a client writes, leases end at a limited rate, neither faster nor slower. While no client writes, they end as
// fast as they can.
func TestExpiryRateIsLimitedWhileClientsWrite(t *testing.T) {
	const leases = 40 * intake.MaxExpiries
	const paced = leases * intake.MinRest
	for _, test := range []struct {
		name        string
		puts        bool
		least, most time.Duration // that it takes
	}{
		{"nobody writes", false, 0, time.Millisecond},
		{"somebody writes", true, paced - intake.MaxExpiries*intake.MinRest - paced/100, paced},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := overdue(t, leases)
			defer w.close()
			start := w.clock.Now()
			for put := start; w.replica.Lessor().Len() > 0; {
				if w.clock.Now().Elapsed(start) > time.Minute {
					t.Fatalf("%d leases never end", w.replica.Lessor().Len())
				}
				if test.puts && !w.clock.Now().Before(put) {
					w.do(1, put1("other", "v"))
					put = put.Add(intake.Lull / 2)
				}
				w.advance(max(1, min(w.wait(), time.Millisecond)))
			}
			if took := w.clock.Now().Elapsed(start); took < test.least || took > test.most {
				t.Errorf("%d leases ended within %v, not in %v to %v", leases, took, test.least, test.most)
			}
		})
	}
}

// However fast clients write, as many leases can end as are granted meanwhile.
func TestExpiriesKeepUpWithGrants(t *testing.T) {
	const commands, leases = 4 * intake.MaxExpiries, 40 * intake.MaxExpiries
	w := overdue(t, leases)
	defer w.close()
	for range 10 {
		var events []Event
		for i := range commands {
			events = append(events, Request{ID: uint64(i + 1), Command: put1(fmt.Sprint(i), "v")})
		}
		before := w.replica.Counts().Expired
		w.step(events...)
		w.settle()
		w.step(Tick{}) // decides what these commands are worth
		w.settle()
		if ended := w.replica.Counts().Expired - before; ended < commands && w.replica.Lessor().Len() > 0 {
			t.Fatalf("%d leases ended beside %d commands; %d are left", ended, commands, w.replica.Lessor().Len())
		}
	}
	if left := w.replica.Lessor().Len(); left > 0 {
		t.Errorf("%d leases are left", left)
	}
}

// A member that ended leases while clients write is called again at once. It measures how long that took, and rests
// accordingly.
func TestExpiryRateFollowsHowLongExpiriesTake(t *testing.T) {
	w := overdue(t, 2*intake.MaxExpiries)
	defer w.close()
	w.step(Request{ID: 1, Command: put1("other", "v")})
	for i := 0; w.replica.Counts().Expired == 0; i++ {
		if i > 10 {
			t.Fatal("no lease ends")
		}
		if len(w.writes) > 0 {
			w.report()
		} else {
			w.step(Tick{})
		}
	}
	if wait := w.wait(); wait > 0 {
		t.Errorf("the replica is to be called again only after %v", wait)
	}
	const took = 2 * time.Millisecond
	w.clock.Advance(took)
	w.step(Tick{})
	w.clock.Advance(w.replica.intake.ExpiryDelay(w.clock.Now()))
	w.step(Tick{}) // decides the ends of the others
	if rest := w.replica.intake.ExpiryDelay(w.clock.Now()); rest != 8*took {
		t.Errorf("after %d leases ended within %v the rest for as many is %v", intake.MaxExpiries, took, rest)
	}
}
