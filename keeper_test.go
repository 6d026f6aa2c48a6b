package leasekeeper_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/clock"
)

func TestInvalidArgumentsAreRefused(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		ctx := w.Context()
		never := func(context.Context, *leasekeeper.Lease) error {
			w.Error("the function was run")
			return nil
		}
		for _, name := range []string{"", "a//b", "/a", "a/", "..", "a\x00", "\xff\xfe", strings.Repeat("x", 10<<10)} {
			_, err := k.Acquire(ctx, name)
			w.is(err, leasekeeper.ErrInvalid)
			_, err = k.TryAcquire(ctx, name)
			w.is(err, leasekeeper.ErrInvalid)
			w.is(k.Run(ctx, name, never), leasekeeper.ErrInvalid)
			w.is(k.Campaign(ctx, name, never), leasekeeper.ErrInvalid)
			_, err = k.Resume(ctx, name, 1)
			w.is(err, leasekeeper.ErrInvalid)
			_, err = k.Get(ctx, name)
			w.is(err, leasekeeper.ErrInvalid)
		}
		for _, bad := range []leasekeeper.Option{
			leasekeeper.WithTTL(0), leasekeeper.WithTTL(-1), leasekeeper.WithTTL(math.MinInt64), leasekeeper.WithTTL(1),
			leasekeeper.WithTTL(10*time.Millisecond - 1), leasekeeper.WithTTL(math.MaxInt64),
			leasekeeper.WithCard("\xff"), leasekeeper.WithCard(strings.Repeat("x", backend.MaxCardText+1)),
		} {
			_, err := k.Acquire(ctx, "x", bad)
			w.is(err, leasekeeper.ErrInvalid)
			w.is(k.Run(ctx, "x", never, bad), leasekeeper.ErrInvalid)
			w.is(k.Campaign(ctx, "x", never, bad), leasekeeper.ErrInvalid)
			_, err = k.Resume(ctx, "x", 1, bad)
			w.is(err, leasekeeper.ErrInvalid)
			_, err = leasekeeper.New(w.store.Backend(), bad)
			w.is(err, leasekeeper.ErrInvalid)
		}
		for _, bad := range []leasekeeper.KeeperOption{
			leasekeeper.WithHolder(""), leasekeeper.WithHolder("\xff"), leasekeeper.WithHolder(strings.Repeat("x", 10<<10)),
			leasekeeper.WithDrift(clock.MaxDrift + 1),
		} {
			_, err := leasekeeper.New(w.store.Backend(), bad)
			w.is(err, leasekeeper.ErrInvalid)
		}
		_, err := leasekeeper.New(nil)
		w.is(err, leasekeeper.ErrInvalid)
		_, err = k.Resume(ctx, "x", 0)
		w.is(err, leasekeeper.ErrInvalid)
		w.is(k.Campaign(ctx, "x", never, leasekeeper.NoWait()), leasekeeper.ErrInvalid)
		for _, prefix := range []string{"\xff", strings.Repeat("x", backend.MaxName+1)} {
			for _, err := range k.List(ctx, prefix) {
				w.is(err, leasekeeper.ErrInvalid)
			}
			for _, err := range k.Watch(ctx, prefix) {
				w.is(err, leasekeeper.ErrInvalid)
			}
		}
		l := w.must(k.Acquire(ctx, "x", leasekeeper.WithTTL(365*24*time.Hour)))
		w.is(l.Announce(ctx, "\xff"), leasekeeper.ErrInvalid)
		time.Sleep(200 * 24 * time.Hour)
		w.must(l, nil)
		w.must(k.Acquire(ctx, "y", leasekeeper.WithTTL(10*time.Millisecond)))
	})
}

func TestOpenRefusesBadURLsAndHidesPasswords(t *testing.T) {
	ctx := t.Context()
	k, err := leasekeeper.Open(ctx, "memory:")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.TryAcquire(ctx, "x"); err != nil {
		t.Error(err)
	}
	if err := k.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for _, url := range []string{"", "nobody:", "memory://host", "memory:x?y=z", "postgres://u:hunter2/x@h/d", "leasekeeper://u:hunter2@h:99999999"} {
		_, err := leasekeeper.Open(ctx, url)
		if !errors.Is(err, leasekeeper.ErrInvalid) {
			t.Errorf("%q: %v", url, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a password is shown: %v", err)
		}
	}
	_, err = leasekeeper.Open(ctx, "memory:", leasekeeper.WithTTL(-1))
	if !errors.Is(err, leasekeeper.ErrInvalid) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := leasekeeper.Open(ended, "memory:"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// plain hides the test clock of a backend.
type plain struct{ backend.Backend }

// Without a test clock a keeper uses the machine's clocks, Go's timers and, on Linux, a timer of the boot clock. It closes
// all of them.
func TestKeeperOnRealClocksLeavesNothingOpen(t *testing.T) {
	const short = 200 * time.Millisecond
	ctx := t.Context()
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0
		}
		return len(open)
	}
	before := files()
	for range 8 {
		store := memory.New()
		k, err := leasekeeper.New(plain{store.Backend()}, leasekeeper.WithTTL(short))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		l, err := k.Acquire(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Announce(ctx, "text"); !errors.Is(err, leasekeeper.ErrUnsupported) {
			t.Error(err)
		}
		time.Sleep(short / 2)
		heal := store.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})
		<-l.Context().Done()
		if err := l.Check(); !errors.Is(err, leasekeeper.ErrLost) {
			t.Error(err)
		}
		heal()
		if err := k.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}
	if after := files(); after > before+3 {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

// Two keepers by URL, in real time. Check reads the machine's clocks, and is exact. A context ends by a timer, which a
// busy machine runs late; other tests show in virtual time that it ends in time.
func TestLeasesChangeHandsInRealTime(t *testing.T) {
	const short = time.Second // a busy machine may stop a process for a third of that
	ctx := t.Context()
	a, errA := leasekeeper.Open(ctx, "memory:real-time", leasekeeper.WithTTL(short))
	b, errB := leasekeeper.New(memory.Named("real-time").Backend(), leasekeeper.WithTTL(short))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	l, err := a.Acquire(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * short)
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	defer memory.Named("real-time").Inject(memory.Fault{Kind: memory.Stall, Op: memory.Renew})()
	next, err := b.Acquire(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if l.Check() == nil {
		t.Error("two hold it")
	}
	<-l.Context().Done()
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	if err := errors.Join(a.Shutdown(ctx), b.Shutdown(ctx)); err != nil {
		t.Error(err)
	}
}

func TestMemoryOfALeaseIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("acquires many leases")
	}
	const many = 20000
	ctx := t.Context()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	store := memory.New()
	own := store.Backend()
	k, err := leasekeeper.New(own, leasekeeper.WithTTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for i := range many {
		if _, err := k.Acquire(ctx, fmt.Sprint("x/", i)); err != nil {
			t.Fatal(err)
		}
	}
	both := heap() - before
	// The memory of the store alone: the same claims without a keeper.
	alone := memory.New().Backend()
	before = heap()
	for i := range many {
		c := backend.Claim{ID: backend.ID{byte(i), byte(i >> 8), 1}, Name: fmt.Sprint("x/", i), Holder: backend.Holder{ID: "a"}, TTL: time.Hour}
		if _, _, err := alone.Claim(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	store2 := heap() - before
	per := (int64(both) - int64(store2)) / many
	t.Logf("%d bytes per held lease in the keeper (%d with the store)", per, both/many)
	if per > 1200 {
		t.Errorf("%d bytes per held lease", per)
	}
	runtime.KeepAlive(alone)
	if err := k.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
