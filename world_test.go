package leasekeeper_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 15 * time.Second

// relied is the part of a TTL that a holder relies on.
var relied = clock.DefaultDrift.RelyRemote(ttl)

// world is a store in a bubble of synctest.
type world struct {
	*testing.T
	clock *memory.Clock
	store *memory.Store
}

// bubble runs a test in a bubble: every goroutine that it leaves behind fails it.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := memory.NewRunningClock()
		test(&world{t, c, memory.New(memory.WithClock(c))})
	})
}

// keeper returns a keeper, and its client of the store.
func (w *world) keeper(id string, o ...leasekeeper.KeeperOption) (*leasekeeper.Keeper, *memory.Backend) {
	w.Helper()
	b := w.store.Backend()
	return w.on(b, id, o...), b
}

func (w *world) on(b backend.Backend, id string, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	w.Helper()
	return keepertest.New(w, time.Hour, b, append([]leasekeeper.KeeperOption{leasekeeper.WithHolder(id), leasekeeper.WithTTL(ttl)}, o...)...)
}

func (w *world) must(l *leasekeeper.Lease, err error) *leasekeeper.Lease {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	if err := l.Check(); err != nil {
		w.Fatal(err)
	}
	return l
}

func (w *world) is(err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%v, and not %v", err, kind)
	}
}

// free fails unless the name is free and no claim waits for it.
func (w *world) free(name string) {
	w.Helper()
	i, err := w.store.Backend().Get(w.Context(), name)
	if err != nil || i.Held || i.Waiting != 0 {
		w.Errorf("%s is not free: %+v, %v", name, i, err)
	}
}

// holder fails unless id holds the name.
func (w *world) holder(name, id string) {
	w.Helper()
	i, err := w.store.Backend().Get(w.Context(), name)
	if err != nil || !i.Held || i.Holder.ID != id {
		w.Errorf("%s is not held by %s: %+v, %v", name, id, i, err)
	}
}

// took returns how long a call takes.
func took(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}
