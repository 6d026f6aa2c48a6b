package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// TestSmallCommandsDoNotWaitForBulk has a small put and a grant come behind hundreds of large puts. The small ones are in
// the next entry, no entry carries much of bulk, and the large ones are all carried out in order.
func TestSmallCommandsDoNotWaitForBulk(t *testing.T) {
	const large, size = 200, 100 << 10
	w := newWorld(t).serve()
	defer w.close()
	value := strings.Repeat("v", size)
	var events []Event
	for i := range large {
		events = append(events, Request{ID: uint64(i + 1), Command: put1("large", value)})
	}
	w.step(Request{ID: large + 1, Command: put1("first", "v")}) // its entry is on its way to the disk
	events = append(events, Request{ID: large + 2, Command: put1("small", "v")}, Request{ID: large + 3, Command: entry.Grant{Lease: 7, TTL: time.Hour}})
	w.step(events...)

	var order []uint64 // of answers
	entries := 0
	for len(w.writes) > 0 || len(w.replica.deferred) > 0 {
		before := len(order)
		bytes := 0
		for _, p := range w.replica.persisting {
			for _, logged := range p.entries {
				bytes = max(bytes, len(logged.GetData()))
			}
		}
		if bytes > intake.MaxBulkEntryBytes+1<<10 {
			t.Fatalf("an entry has %d bytes", bytes)
		}
		var effects []Effect
		if len(w.replica.deferred) > 0 {
			effects = w.step(Tick{})
		} else {
			effects = w.report()
		}
		for _, e := range effects {
			if r, ok := e.(Reply); ok {
				if r.Err != nil {
					t.Errorf("request %d: %v", r.ID, r.Err)
				}
				order = append(order, r.ID)
			}
		}
		if len(order) > before {
			entries++
		}
		if slices.Contains(order, large+2) != slices.Contains(order, large+3) {
			t.Error("the small put and the grant are not answered together")
		}
	}
	if at := slices.Index(order, large+3); at < 0 || at > 5 {
		t.Errorf("the grant is answered after %d others: %v", at, order)
	}
	order = slices.DeleteFunc(order, func(id uint64) bool { return id > large })
	if len(order) != large || !slices.IsSorted(order) {
		t.Errorf("the large puts are answered in the order %v", order)
	}
	if n := w.replica.intake.Len(); n != 0 {
		t.Errorf("%d commands wait after all were answered", n)
	}
}

// TestBulkIsNotStarved keeps small commands coming in such a number that each entry is full of them.
func TestBulkIsNotStarved(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	next := uint64(100)
	flood := func() (events []Event) {
		for range intake.MaxEntryWeight + 1 {
			next++
			events = append(events, Request{ID: next, Command: put1("k", "v")})
		}
		return events
	}
	w.step(flood()...)
	w.step(Request{ID: 1, Command: put1("large", strings.Repeat("v", entry.BulkBytes))})
	for range 10 {
		effects := slices.Concat(w.report(), w.step(flood()...))
		for _, e := range effects {
			if r, ok := e.(Reply); ok && r.ID == 1 {
				return
			}
		}
	}
	t.Error("a large put is not carried out while small ones come")
}

// A full bulk queue refuses bulk commands, and no small one.
func TestFullBulkQueueRefusesNoSmallCommand(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.step(Request{ID: 1, Command: put1("first", "v")})
	value := strings.Repeat("v", 1<<20)
	refused := 0
	for i := range 2 * intake.MaxBytes >> 20 {
		for _, e := range w.step(Request{ID: uint64(i + 2), Command: put1("large", value)}) {
			if r, ok := e.(Reply); ok && errors.Is(r.Err, ErrTooManyRequests) {
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("no large put is refused")
	}
	for _, e := range w.step(Request{ID: 1000, Command: put1("small", "v")}, Request{ID: 1001, Command: entry.Grant{Lease: 7, TTL: time.Hour}}) {
		if r, ok := e.(Reply); ok {
			t.Errorf("a small command is refused while the bulk queue is full: %v", r.Err)
		}
	}
}
