package claim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Tests of what Collect removes, and that tokens continue.

func TestCollectKeepsHeldPinnedAndYoungNames(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	free := func(name string) {
		t.Helper()
		w.is("release", a.Release(t.Context(), a.hold(name, time.Minute)), nil)
	}
	free("old")
	w.is("pin", a.Pin(t.Context(), "pinned", "x"), nil)
	held := a.hold("held", time.Hour)
	w.pass(time.Hour)
	free("young")
	for i := range 600 {
		free(fmt.Sprintf("many%d", i))
	}
	count := func(what claim.Collection, want int) {
		t.Helper()
		n, err := b.Collect(t.Context(), what)
		if n != want || err != nil {
			t.Errorf("collected %d, not %d: %v", n, want, err)
		}
	}
	count(claim.Collection{Age: time.Hour}, 1)
	pages := 0
	count(claim.Collection{Prefix: "many", Progress: func(int, int) { pages++ }}, 600)
	same(w, "pages", pages, 2)
	count(claim.Collection{}, 1)
	_, err := b.Collect(t.Context(), claim.Collection{Age: -1})
	w.is("a negative age", err, backend.ErrInvalid)
	if token := b.hold("old", time.Minute).Token(); token != 3 {
		t.Errorf("a name that was collected begins with token %d", token)
	}
	a.extend(held, 0)
}

// After a restore of the database all tokens are above a raised floor.
func TestTokensRiseAboveARaisedFloor(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	l := a.hold("job", time.Minute)
	got, err := a.RaiseFloor(t.Context(), 1000)
	if got != 1000 || err != nil {
		t.Error(got, err)
	}
	a.extend(l, 0)
	w.is("release", a.Release(t.Context(), l), nil)
	same(w, "token", a.hold("job", time.Minute).Token(), 1001)
	same(w, "token of a new name", a.hold("new", time.Minute).Token(), 1001)
	got, err = a.RaiseFloor(t.Context(), 5)
	if got != 1000 || err != nil {
		t.Error(got, err)
	}
}

func TestTokensDoNotOverflow(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	_, err := a.RaiseFloor(t.Context(), 1<<63-2)
	w.is("a floor that leaves nothing", err, backend.ErrInvalid)
	_, err = a.RaiseFloor(t.Context(), 1<<63-3)
	w.is("a floor that leaves one", err, nil)
	l := a.hold("job", time.Minute)
	same(w, "the last token", l.Token(), 1<<63-2)
	w.is("release", a.Release(t.Context(), l), nil)
	_, err = a.try("job", time.Minute)
	w.is("a claim", err, backend.ErrInvalid)
	n, err := a.Collect(t.Context(), claim.Collection{})
	if n != 0 || err != nil {
		t.Errorf("collected %d, %v", n, err)
	}
}

// A holder that dies without a release leaves a record too. Collect removes it once its lease has certainly
// been expired for long enough.
func TestCollectRemovesExpiredLeases(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	twin := a.onSameMachine("a twin")
	collected := func(by *actor, age time.Duration, want int) {
		t.Helper()
		n, err := by.Collect(t.Context(), claim.Collection{Prefix: "orphan/", Age: age})
		if n != want || err != nil {
			t.Errorf("%s collected %d, not %d: %v", by.name, n, want, err)
		}
	}
	l := a.hold("orphan/1", 30*time.Second)
	a.hold("orphan/2", 30*time.Second)
	a.hold("elsewhere", 30*time.Second)
	w.is("pin", b.Pin(t.Context(), "orphan/2", "x"), nil)
	w.pass(30 * time.Second)
	collected(twin, 0, 0) // at exactly the end it is still held
	collected(b, 0, 0)    // which has just begun to count
	w.pass(10 * time.Second)
	collected(twin, 11*time.Second, 0)
	a.extend(l, 0) // a lease that is not old enough stays as it was
	w.pass(40 * time.Second)
	collected(b, 0, 0) // b has seen a new write
	collected(twin, 10*time.Second, 1)
	same(w, "elsewhere", a.held("elsewhere"), true)
	same(w, "pinned", a.held("orphan/2"), true)
	w.is("a extends", a.Extend(t.Context(), l, 0), backend.ErrLost)
	same(w, "token", b.hold("orphan/1", time.Minute).Token(), l.Token()+2)

	w.pass(61 * time.Second) // of b's own write, which a has never seen
	collected(b, time.Second, 1)
}

// Collect forgets observations of writes that were replaced, on every page and of no other names. It keeps
// those that may still be needed.
func TestCollectForgetsObservationsOfReplacedWrites(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	store := w.memory.Open()
	observe := func(name string, op claim.Op, raw int64) int64 {
		t.Helper()
		at, err := store.Observe(t.Context(), name, "a boot that is over", op, clock.Instant{Raw: raw, Boot: raw})
		if err != nil {
			t.Fatal(err)
		}
		return at.Raw
	}
	first := make(map[string]claim.Op)
	names := []string{"other", "jobs/last"}
	for i := range 600 {
		names = append(names, fmt.Sprintf("jobs/%03d", i))
	}
	for _, name := range names {
		l := a.hold(name, time.Hour)
		f, err := store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		first[name] = f.Record.Op
		observe(name, f.Record.Op, 1)
		if name != "jobs/last" {
			a.extend(l, 0)
		}
	}
	names = append(names, "jobs/z") // it no longer has a record
	first["jobs/z"] = claim.NewOp()
	observe("jobs/z", first["jobs/z"], 1)
	if n, err := a.Collect(t.Context(), claim.Collection{Prefix: "jobs/"}); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	for _, name := range names {
		at, want := observe(name, first[name], 2), int64(2)
		if name == "other" || name == "jobs/last" {
			want = 1
		}
		if at != want {
			t.Errorf("%s: observed at %d, and not at %d", name, at, want)
		}
	}
}

// Processes that run now and then continue the count of earlier ones, as with claims.
func TestCollectContinuesEarlierCounts(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	a.hold("job", 30*time.Second)
	for range 3 {
		n, err := b.onSameMachine("another").Collect(t.Context(), claim.Collection{Age: time.Hour})
		if n != 0 || err != nil {
			t.Errorf("collected %d, %v", n, err)
		}
		w.pass(20 * time.Minute)
	}
	w.pass(31 * time.Second)
	n, err := b.onSameMachine("another").Collect(t.Context(), claim.Collection{Age: time.Hour})
	if n != 1 || err != nil {
		t.Errorf("collected %d, %v", n, err)
	}
}

// Another client renews, pins or claims a name that was found expired: Collect leaves it, and collects the
// others.
func TestCollectLosesToConcurrentWrites(t *testing.T) {
	for what, meanwhile := range map[string]func(w *world, a *actor, l *claim.Lease){
		"renews": func(_ *world, a *actor, l *claim.Lease) { a.extend(l, 0) },
		"pins":   func(w *world, a *actor, _ *claim.Lease) { w.is("pin", a.Pin(w.Context(), "x/1", "x"), nil) },
		"claims": func(_ *world, a *actor, _ *claim.Lease) { a.hold("x/1", time.Minute) },
	} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		b := a.onSameMachine("b")
		l := a.hold("x/1", 30*time.Second)
		a.hold("x/2", 30*time.Second)
		w.pass(time.Minute)
		b.wire.before = func(claim.Swap) { b.wire.before = nil; meanwhile(w, a, l) }
		n, err := b.Collect(t.Context(), claim.Collection{})
		if n != 1 || err != nil {
			t.Errorf("%s: collected %d, %v", what, n, err)
		}
		same(w, what, a.held("x/1"), true)
		same(w, "the other", a.held("x/2"), false)
	}
}

// A lease from before a reboot of the only machine ends at once. When it ended is unknown, so its age counts
// from then.
func TestCollectEndsLeasesFromBeforeAReboot(t *testing.T) {
	w := newWorld(t, claimtest.WithGone(func(d clock.Domain) bool { return d == "boot 1" }))
	a := w.actor("boot 1", time.Hour)
	b := w.actor("boot 2", 0)
	a.hold("job", 24*time.Hour)
	for want := range 2 {
		n, err := b.Collect(t.Context(), claim.Collection{Age: time.Hour})
		if n != want || err != nil {
			t.Errorf("collected %d, not %d: %v", n, want, err)
		}
		same(w, "held", b.held("job"), false)
		w.pass(time.Hour)
	}
}

// In store-clock mode the store knows for how long a lease has been expired.
func TestCollectGoesByTheStoresClockInStoreClockMode(t *testing.T) {
	w := newWorld(t)
	a, b := judged(w, "a"), judged(w, "b")
	a.hold("job", time.Minute)
	w.memory.Advance(90 * time.Second) // by the store's clock alone
	for want, age := range []time.Duration{time.Minute, 20 * time.Second} {
		n, err := b.Collect(t.Context(), claim.Collection{Age: age})
		if n != want || err != nil {
			t.Errorf("collected %d of what is over for more than %v, not %d: %v", n, age, want, err)
		}
	}
}
