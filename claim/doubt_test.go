package claim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Tests of answers that are lost or late, and of requests that are never sent.

func TestLostRequestOfAClaimIsSentAgain(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.wire.next = []string{"lost", "lost"}
	l := a.hold("job", 30*time.Second)
	same(w, "it is relied on for", a.remains(l), 30*time.Second)
}

// Each attempt has its own time: the deadline is that of the attempt which was confirmed.
func TestDeadlineIsThatOfTheConfirmedAttempt(t *testing.T) {
	for fate, want := range map[string]time.Duration{"unanswered": 20 * time.Second, "lost": 30 * time.Second} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		l := a.hold("job", 15*time.Second)
		a.wire.next = []string{fate}
		a.wire.slow = func() { w.pass(10 * time.Second) } // after the first send, before the read
		a.extend(l, 30*time.Second)
		same(w, fate, a.remains(l), want)
		same(w, fate+": in the record", a.state("job").Record.Expiry, l.Until())
	}
}

// While the outcome of a renewal is unknown, the old deadline stands.
func TestOldDeadlineStandsInDoubt(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	l := a.hold("job", 30*time.Second)
	until := l.Until()
	w.pass(10 * time.Second)
	a.wire.next = []string{"unanswered"}
	a.wire.down = fmt.Errorf("%w: nothing to read", backend.ErrUnavailable)
	err := a.Extend(t.Context(), l, 0)
	w.is("a extends", err, backend.ErrUnknownOutcome)
	if errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("it can be taken for a refusal: %v", err)
	}
	same(w, "until", l.Until(), until)
	a.wire.down = nil
	a.extend(l, 0)
	same(w, "it is relied on for", a.remains(l), 30*time.Second)
}

// A claim in doubt is never reported as failed, whatever error comes next.
func TestClaimInDoubtIsNeverReportedAsFailed(t *testing.T) {
	unavailable := fmt.Errorf("%w: down", backend.ErrUnavailable)
	corrupt := fmt.Errorf("%w: what is this", backend.ErrCorrupt)
	for _, down := range []error{unavailable, corrupt, errTorn, context.DeadlineExceeded} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		a.wire.next, a.wire.slow = []string{"parked"}, func() { a.wire.down = down }
		q := a.request("job", 30*time.Second)
		l, err := a.Claim(t.Context(), q)
		w.is("a claims", err, backend.ErrUnknownOutcome)
		if l == nil || l.Token() != 0 {
			t.Fatalf("the lease in doubt: %+v", l)
		}
		_, err = a.Claim(t.Context(), q)
		w.is("a claims again and cannot read", err, backend.ErrUnknownOutcome)
		a.wire.down = nil
		same(w, "landed late", a.wire.arrive(), 1)
		again, err := a.Claim(t.Context(), q)
		w.is("a claims again", err, nil)
		same(w, "the lease", again, l)
		same(w, "the token", again.Token(), 1)
		same(w, "it is relied on for", a.remains(again), 30*time.Second)
	}
}

// A claim in doubt that can no longer land is refused like any other.
func TestClaimInDoubtIsRefusedOnceItCannotLand(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	a.wire.next = []string{"parked"}
	a.wire.slow = func() { b.hold("job", time.Minute) }
	_, err := a.try("job", 30*time.Second)
	w.is("a claims", err, backend.ErrHeld)
	same(w, "landed late", a.wire.arrive(), 0)
}

// The release of a claim in doubt makes sure that the claim never lands, whatever it would replace.
func TestReleasedClaimNeverLands(t *testing.T) {
	for _, c := range []struct {
		there   string
		prepare func(w *world, b *actor)
	}{
		{"a tombstone", func(w *world, b *actor) {
			w.is("release", b.Release(w.Context(), b.hold("job", time.Minute)), nil)
		}},
		{"a pinned tombstone", func(w *world, b *actor) { w.is("pin", b.Pin(w.Context(), "job", "x"), nil) }},
		{"a lease that is over", func(w *world, b *actor) { b.hold("job", 10*time.Millisecond); w.pass(time.Second) }},
	} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		c.prepare(w, a.onSameMachine("b"))
		token := a.state("job").Record.Token
		a.wire.next = []string{"parked", "unavailable"}
		q := a.request("job", 30*time.Second)
		l, err := a.Claim(t.Context(), q)
		w.is("a claims on "+c.there, err, backend.ErrUnknownOutcome)
		w.is("a releases", a.Release(t.Context(), l), nil)
		same(w, "landed late on "+c.there, a.wire.arrive(), 0)
		s := a.state("job")
		if s.Record.Held() || s.Record.Token < token {
			t.Errorf("on %s: %+v", c.there, s.Record)
		}
		_, err = a.Claim(t.Context(), q)
		w.is("the same claim once more", err, backend.ErrLost)
	}
}

func TestReleaseOfAClaimThatLandedEndsIt(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.wire.next, a.wire.slow = []string{"unanswered"}, func() { a.wire.down = errTorn }
	l, err := a.try("job", 30*time.Second)
	w.is("a claims", err, backend.ErrUnknownOutcome)
	w.is("a releases", a.Release(t.Context(), l), backend.ErrUnknownOutcome)
	a.wire.down = nil
	w.is("a releases again", a.Release(t.Context(), l), nil)
	if r := a.state("job").Record; r.Held() || r.Token != 2 {
		t.Errorf("released: %+v", r)
	}
}

// The answer to a release is lost. When the release is repeated, another client already has the name.
func TestRepeatedReleaseEndsNoOtherTenure(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	a.wire.next, a.wire.down = []string{"unanswered"}, errTorn
	w.is("a releases", a.Release(t.Context(), l), backend.ErrUnknownOutcome)
	a.wire.down = nil
	next := b.hold("job", time.Minute)
	w.is("a releases again", a.Release(t.Context(), l), nil)
	w.is("and again", a.Release(t.Context(), l), nil)
	b.extend(next, 0)
	w.is("a extends", a.Extend(t.Context(), l, 0), backend.ErrLost)
}

// A renewal that is under way while the lease is released brings nothing back, whichever arrives first.
func TestConcurrentRenewalDoesNotUndoARelease(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	l := a.hold("job", 30*time.Second)
	a.wire.next = []string{"parked", ""}
	a.wire.slow = func() { w.is("a releases meanwhile", a.Release(t.Context(), l), nil) }
	err := a.Extend(t.Context(), l, 0)
	w.is("the renewal", err, backend.ErrLost)
	same(w, "landed late", a.wire.arrive(), 0)
	same(w, "held", a.held("job"), false)

	l = a.hold("job", 30*time.Second)
	released := false
	a.wire.before = func(claim.Swap) { // the renewal arrives while the release is under way
		if !released {
			released = true
			w.is("the renewal", a.onSameMachine("a twin").Client.Extend(t.Context(), l, 0), backend.ErrInvalid)
			w.is("the renewal", a.Extend(t.Context(), l, 0), backend.ErrLost)
		}
	}
	w.is("the release", a.Release(t.Context(), l), nil)
	same(w, "held", a.held("job"), false)
}

// What the store reports as unavailable has certainly not happened.
func TestUnavailableStoreChangesNothing(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.wire.next = []string{"unavailable"}
	l, err := a.try("job", 30*time.Second)
	w.is("claim", err, backend.ErrUnavailable)
	if l != nil || errors.Is(err, backend.ErrUnknownOutcome) {
		t.Errorf("a claim that surely failed left %v, %v", l, err)
	}
	l = a.hold("job", 30*time.Second)
	until := l.Until()
	a.wire.next = []string{"unavailable"}
	w.is("extend", a.Extend(t.Context(), l, 0), backend.ErrUnavailable)
	same(w, "until", l.Until(), until)
	a.wire.next = []string{"unavailable"}
	w.is("release", a.Release(t.Context(), l), backend.ErrUnavailable)
	w.is("release", a.Release(t.Context(), l), nil)
}

// A context ends while a write is under way. The client still reads back the outcome, for a short time.
func TestOutcomeIsReadBackAfterTheContextEnds(t *testing.T) {
	for fate, want := range map[string]error{"unanswered": nil, "lost": backend.ErrUnknownOutcome, "parked": backend.ErrUnknownOutcome} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		a.wire.next = []string{fate}
		a.wire.slow = cancel
		l, err := a.Claim(ctx, a.request("job", 30*time.Second))
		w.is("claim, "+fate, err, want)
		if want != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v does not say why", fate, err)
		}
		if want == nil {
			same(w, "it is relied on for", a.remains(l), 30*time.Second)
		}
		w.is("release", a.Release(t.Context(), l), nil)
	}
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	ctx, cancel := context.WithCancel(t.Context())
	a.wire.next = []string{"parked"}
	a.wire.slow = func() { b.hold("job", time.Minute); cancel() }
	_, err := a.Claim(ctx, a.request("job", 30*time.Second))
	w.is("a claim that cannot land any more", err, context.Canceled)
	if errors.Is(err, backend.ErrUnknownOutcome) {
		t.Error(err)
	}
}

func TestEndedContextSendsNothing(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	l := a.hold("job", 30*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.wire.counted()
	_, err := a.Claim(ctx, a.request("other", time.Minute))
	w.is("claim", err, context.Canceled)
	w.is("extend", a.Extend(ctx, l, 0), context.Canceled)
	w.is("pin", a.Pin(ctx, "job", "x"), context.Canceled)
	w.is("all", a.ExtendAll(ctx, []*claim.Lease{l}, func(_ int, err error) { w.is("one", err, context.Canceled) }), context.Canceled)
	same(w, "calls", a.wire.counted(), "map[]")
}

// ExtendAll renews many leases with one statement. One lease in trouble does not delay the others.
func TestExtendAllIsOneStatement(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	var leases []*claim.Lease
	for i := range 100 {
		leases = append(leases, a.hold(fmt.Sprintf("job%03d", i), 30*time.Second))
	}
	w.pass(10 * time.Second)
	a.wire.counted()
	reported := make([]error, len(leases))
	count := 0
	all := func() {
		t.Helper()
		count = 0
		w.is("all", a.ExtendAll(t.Context(), leases, func(i int, err error) { reported[i] = err; count++ }), nil)
		same(w, "reports", count, len(leases))
	}
	all()
	same(w, "100 renewals cost", a.wire.counted(), "map[swap all:1]")
	for i, l := range leases {
		w.is(l.Name(), reported[i], nil)
		same(w, l.Name(), a.remains(l), 30*time.Second)
	}
	w.is("pin", b.Pin(t.Context(), "job003", "by another client"), nil)
	w.is("revoke", b.Revoke(t.Context(), "job007", 0, "", true), nil)
	w.is("revoke", b.Revoke(t.Context(), "job008", 0, "", false), nil)
	w.pass(10 * time.Second)
	all()
	for i, l := range leases {
		want, remains := error(nil), 30*time.Second
		if i == 7 || i == 8 {
			want, remains = backend.ErrLost, 20*time.Second
		}
		w.is(l.Name(), reported[i], want)
		same(w, l.Name(), a.remains(l), remains)
	}
	a.wire.counted()
	all()
	same(w, "what lost ones cost", a.wire.counted(), "map[swap all:1]")
}

func TestExtendAllFindsLostAnswers(t *testing.T) {
	for _, c := range []struct {
		fate  string
		plain bool  // a store without a statement for many leases
		kind  error // of all, or of one if plain
	}{
		{"lost", false, nil}, {"unanswered", false, nil}, {"unavailable", false, backend.ErrUnavailable},
		{"lost", true, nil}, {"unanswered", true, nil}, {"unavailable", true, backend.ErrUnavailable},
	} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		if c.plain {
			a = w.plain("a", a.clocks)
		}
		var leases []*claim.Lease
		for i := range 20 {
			leases = append(leases, a.hold(fmt.Sprint("job", i), 30*time.Second))
		}
		w.pass(10 * time.Second)
		a.wire.next = []string{c.fate}
		errs := make(map[int]error)
		w.is("all", a.ExtendAll(t.Context(), leases, func(i int, err error) { errs[i] = err }), nil)
		same(w, "reported", len(errs), len(leases))
		failed := 0
		for i, l := range leases {
			if errs[i] != nil {
				failed++
				w.is(c.fate, errs[i], c.kind)
				same(w, c.fate, a.remains(l), 20*time.Second)
			} else {
				same(w, c.fate, a.remains(l), 30*time.Second)
			}
		}
		want := map[bool]int{false: len(leases), true: 1}[c.plain]
		if c.kind == nil {
			want = 0
		}
		same(w, fmt.Sprint(c.fate, c.plain, " failed"), failed, want)
	}
}

// An unanswered statement for many leases may still land, whatever happens to the leases that are then sent
// again.
func TestExtendAllStaysUnknownWhileAWriteMayLand(t *testing.T) {
	for fate, want := range map[string]error{"lost": backend.ErrUnknownOutcome, "": backend.ErrUnavailable} {
		w := newWorld(t)
		a, b := w.actor("a", time.Hour), w.actor("b", 0)
		leases := []*claim.Lease{a.hold("x", 30*time.Second), a.hold("y", 30*time.Second)}
		leases = append(leases, leases[0]) // the second handle is not sent, and is in doubt all the same
		for _, l := range leases[:2] {
			if fate == "" {
				w.is("pin", b.Pin(t.Context(), l.Name(), "so that a's write conflicts"), nil)
			}
		}
		w.pass(10 * time.Second)
		a.wire.next = []string{fate, "unavailable", "unavailable"}
		w.is("all", a.ExtendAll(t.Context(), leases, func(i int, err error) {
			w.is(fmt.Sprintf("%d after %q", i, fate), err, want)
			if want == backend.ErrUnknownOutcome && errors.Is(err, backend.ErrUnavailable) {
				t.Errorf("it can be taken for a refusal: %v", err)
			}
		}), nil)
		for _, l := range leases[:2] {
			same(w, "until", a.remains(l), 20*time.Second)
			a.extend(l, 0)
		}
	}
}

// Two handles of one tenure, or one handle twice, do not disturb each other.
func TestExtendAllAcceptsTwoHandlesOfOneTenure(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	q := a.request("job", 30*time.Second)
	one, _ := a.Claim(t.Context(), q)
	two, _ := a.Claim(t.Context(), q)
	w.pass(10 * time.Second)
	leases := []*claim.Lease{one, two, one, a.hold("other", time.Minute)}
	count := 0
	w.is("all", a.ExtendAll(t.Context(), leases, func(i int, err error) { count++; w.is(fmt.Sprint(i), err, nil) }), nil)
	same(w, "reports", count, len(leases))
	same(w, "one", a.remains(one), 30*time.Second)
	same(w, "two", a.remains(two), 30*time.Second)
}

// A name without a record first gets one that promises nothing. So a delayed claim that arrives after the
// record was removed begins no tenure with an old token.
func TestRecordIsCreatedBeforeItIsClaimed(t *testing.T) {
	for _, first := range []string{"parked", "unanswered", "lost", ""} {
		w := newWorld(t)
		a, b := w.actor("a", time.Hour), w.actor("b", 0)
		a.wire.first = []string{first, first}
		l := a.hold("job", 30*time.Second)
		same(w, "token", l.Token(), 1)
		w.pass(31 * time.Second)
		w.is("a's lease ends", a.Expire(t.Context(), "job"), nil)
		w.is("b releases", b.Release(t.Context(), b.hold("job", time.Minute)), nil)
		n, err := b.Collect(t.Context(), claim.Collection{})
		if n != 1 || err != nil {
			t.Errorf("collected %d, %v", n, err)
		}
		a.wire.arrive()
		same(w, "held", a.held("job"), false)
		w.is("a extends", a.Extend(t.Context(), l, 0), backend.ErrLost)
		same(w, "token", b.hold("job", time.Minute).Token(), 5)
	}
}

// A claim to a name without a record notices a concurrent collection.
func TestClaimReadsTheFloorAfterCreatingTheRecord(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	a.wire.first = []string{"parked", "parked"}
	a.wire.making = func() { // a has seen no record, and no floor
		for range 3 { // tokens 1 to 6
			w.is("b releases", b.Release(t.Context(), b.hold("job", time.Minute)), nil)
		}
		n, err := b.Collect(t.Context(), claim.Collection{})
		if n != 1 || err != nil {
			t.Errorf("collected %d, %v", n, err)
		}
		a.wire.arrive()
	}
	l := a.hold("job", 30*time.Second)
	same(w, "token", l.Token(), 7)
	same(w, "it is relied on for", a.remains(l), 30*time.Second)
}

// A lost answer while the record is created leaves the claim itself certain.
func TestUnansweredCreationLeavesNoDoubt(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.wire.first = slices.Repeat([]string{"lost"}, 8)
	l, err := a.try("job", time.Minute)
	w.is("claim", err, backend.ErrContention)
	if l != nil {
		t.Error("a lease")
	}
	a.wire.first = []string{"unavailable"}
	_, err = a.try("job", time.Minute)
	w.is("claim", err, backend.ErrUnavailable)
	a.hold("job", time.Minute)
}

// The same claim, sent or answered twice, makes one tenure.
func TestRepeatedClaimIsTheSameTenure(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	q := a.request("job", 30*time.Second)
	one, err := a.Claim(t.Context(), q)
	w.is("claim", err, nil)
	w.pass(10 * time.Second)
	two, err := a.Claim(t.Context(), q)
	w.is("claim again", err, nil)
	same(w, "token", two.Token(), one.Token())
	same(w, "it is relied on for", a.remains(two), 30*time.Second)
	a.extend(one, 0)
	a.extend(two, 0)
	w.is("release", a.Release(t.Context(), one), nil)
	w.is("extend", a.Extend(t.Context(), two, 0), backend.ErrLost)
	_, err = a.Claim(t.Context(), q)
	w.is("claim after the release", err, backend.ErrLost)
	a.wire.next, a.wire.slow = []string{"parked"}, func() { a.wire.down = errTorn }
	q = a.request("job", time.Minute)
	_, err = a.Claim(t.Context(), q)
	w.is("claim", err, backend.ErrUnknownOutcome)
	q.Name = "another"
	_, err = a.Claim(t.Context(), q)
	w.is("another claim with the id", err, backend.ErrInvalid)
}

// An error of the store's own is no refusal either.
func TestErrorOfNoKindIsAnUnknownOutcome(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.wire.next = []string{"bare"}
	l := a.hold("job", 30*time.Second)
	a.wire.next = []string{"bare"}
	w.is("release", a.Release(t.Context(), l), nil)
	same(w, "held", a.held("job"), false)
}

// A claim that finds its own tenure, and cannot prolong it, has not failed: it holds the name.
func TestClaimThatIsFoundButNotProlongedIsInDoubt(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	q := a.request("job", 30*time.Second)
	_, err := a.Claim(t.Context(), q)
	w.is("claim", err, nil)
	a.wire.next = []string{"unavailable"}
	l, err := a.Claim(t.Context(), q)
	w.is("claim again", err, backend.ErrUnknownOutcome)
	if l == nil {
		t.Fatal("no lease")
	}
	w.is("release", a.Release(t.Context(), l), nil)
	same(w, "held", a.held("job"), false)
}
