package claimtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// RunCrashes tests a store whose database crashes during many writes, and starts again: crash makes it do both, and
// returns when it has. Afterwards the store has every acknowledged write, and no refused one.
func RunCrashes(t testing.TB, store claim.Store, crash func()) {
	const writers, enough = 8, 30
	c := &crashing{TB: t, store: store}
	names := make([]lastWrite, writers)
	var all sync.WaitGroup
	for i := range names {
		names[i].name = fmt.Sprintf("jobs/%d", i)
		all.Go(func() {
			for !c.stop.Load() && c.write(&names[i]) {
			}
		})
	}
	for range 2 {
		c.awaitWrites(enough)
		crash()
	}
	c.awaitWrites(enough)
	c.stop.Store(true)
	all.Wait()
	if c.cut.Load() == 0 {
		t.Error("no write was interrupted")
	}
	for _, l := range names {
		f, err := store.Get(t.Context(), l.name)
		if err != nil || f.Record.Op != l.sure && !slices.Contains(l.unknown, f.Record.Op) {
			t.Errorf("%s has op %v, and not %v, %v", l.name, f.Record.Op, l.sure, err)
		}
	}
}

// crashing is one run of RunCrashes.
type crashing struct {
	testing.TB
	store        claim.Store
	stop         atomic.Bool
	written, cut atomic.Int64
}

// lastWrite is what a writer knows of its name.
type lastWrite struct {
	name    string
	sure    claim.Op // acknowledged
	unknown []claim.Op
	token   backend.Token
}

// awaitWrites waits until n more writes were acknowledged.
func (c *crashing) awaitWrites(n int64) {
	for before := c.written.Load(); c.written.Load() < before+n; {
		time.Sleep(5 * time.Millisecond)
	}
}

// write writes the record of a name once. It returns false if the store has broken its promise.
func (c *crashing) write(l *lastWrite) bool {
	r := claim.Record{Name: l.name, Holder: "me", Token: l.token + 1, Op: claim.NewOp(), Incarnation: [16]byte{1}, Domain: "test", TTL: time.Minute}
	done, err := c.store.Swap(c.Context(), claim.Swap{Old: l.sure, Record: r})
	switch {
	case err == nil && done:
		l.sure, l.token, l.unknown = r.Op, r.Token, nil
		c.written.Add(1)
	case err == nil: // a write whose outcome was unknown had happened
		f, err := c.store.Get(c.Context(), l.name)
		if err != nil {
			return true
		}
		if !slices.Contains(l.unknown, f.Record.Op) {
			c.Errorf("%s has op %v, which no unknown write has", l.name, f.Record.Op)
			return false
		}
		l.sure, l.token, l.unknown = f.Record.Op, f.Record.Token, nil
	case errors.Is(err, backend.ErrUnknownOutcome):
		l.unknown = append(l.unknown, r.Op)
		c.cut.Add(1)
	case !errors.Is(err, backend.ErrUnavailable):
		c.Errorf("%s: %v", l.name, err)
	}
	if err != nil {
		time.Sleep(5 * time.Millisecond)
	}
	return true
}
