package claim_test

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Tests of the promises about leases whose holders' clocks are known only by their writes, one test for each
// promise. Juju's first lease package made the same promises.

// A claim holds the name for at least its TTL, counted from the start of the call.
func TestClaimLastsForItsTTL(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 9*time.Hour)
	b.refusedAll(a.hold("job", 30*time.Second), 30*time.Second)
}

// refusedAll checks that every other client is refused for d, and that one gets the name after twice d.
func (a *actor) refusedAll(l *claim.Lease, d time.Duration) {
	a.Helper()
	for range 30 {
		a.refused(l.Name())
		a.pass(d / 30)
	}
	a.refused(l.Name()) // at exactly the end it is still held
	a.pass(2 * d)
	a.hold(l.Name(), time.Minute)
}

// A renewal, too, holds the name for at least its TTL.
func TestExtendLastsForItsTTL(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	b.refused("job")
	w.pass(20 * time.Second)
	a.extend(l, 0)
	same(w, "it is relied on for", a.remains(l), 30*time.Second)
	b.refusedAll(l, 30*time.Second)
}

// A renewal never shortens a lease. It may therefore promise more than was requested.
func TestExtendNeverShortens(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", time.Minute)
	w.pass(10 * time.Second)
	a.extend(l, time.Second)
	same(w, "it is relied on for", a.remains(l), 50*time.Second)
	same(w, "granted", l.TTL(), time.Second)
	b.refusedAll(l, 50*time.Second)
}

// Others end a lease only when it is certain that its last writer's own clocks have passed the expiry.
func TestExpireNeedsTheWritersClocksPastTheEnd(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	w.pass(10 * time.Second)
	w.is("b expires it on sight", b.Expire(t.Context(), "job"), backend.ErrHeld)
	w.pass(25 * time.Second)
	// a, the writer, knows; b does not.
	w.is("b expires it too early", b.Expire(t.Context(), "job"), backend.ErrHeld)
	w.is("a expires it", a.Expire(t.Context(), "job"), nil)
	same(w, "vacant, with token", a.state("job").Record.Token, l.Token()+1)
}

// Three clients:
//
//   - A writes at 01:00:00 by its clock for 30 s.
//   - B, 20 s ahead, reads the record at 01:00:24 by its clock, so it must wait until 01:00:54.
//   - C, 5 s behind, reads it at 00:59:58, so it waits until 01:00:28 and is the first that may take it.
//
// From then on only C's clock matters to B.
func TestThreeClientsWithSkewedClocks(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.actor("a", time.Hour), w.actor("b", time.Hour+20*time.Second), w.actor("c", time.Hour-5*time.Second)
	latest := func(x *actor) time.Duration { // to the nearest second: the drift bound is added
		return time.Duration(x.state("job").Latest.Raw).Round(time.Second)
	}
	a.hold("job", 30*time.Second)
	w.pass(3 * time.Second) // it is 01:00:03A = 01:00:23B = 00:59:58C
	same(w, "C infers", latest(c), time.Hour+28*time.Second)
	w.pass(time.Second)
	same(w, "B infers", latest(b), time.Hour+54*time.Second)
	w.pass(29*time.Second + time.Millisecond) // 01:00:33.001A = 01:00:28.001C
	w.is("B tries first", b.Expire(t.Context(), "job"), backend.ErrHeld)
	l := c.hold("job", 30*time.Second)
	w.is("B tries", b.Expire(t.Context(), "job"), backend.ErrHeld)
	same(w, "B now infers", latest(b), time.Hour+53*time.Second+30*time.Second)
	same(w, "the next token", l.Token(), 2)
}

// A delayed write is not accepted once another write has happened.
func TestLateWritesAreDiscarded(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour, impatient), w.actor("b", 0)
	b.is("release", b.Release(t.Context(), b.hold("job", time.Minute)), nil)
	a.wire.next = []string{"parked", "unavailable"}
	_, err := a.try("job", 30*time.Second)
	w.is("a claims", err, backend.ErrUnknownOutcome)
	l := b.hold("job", 30*time.Second)
	same(w, "writes that happened late", a.wire.arrive(), 0)
	b.extend(l, 0)
	same(w, "the token", b.state("job").Record.Token, l.Token())
}

func impatient(o *claim.Options) { o.Attempts = 1 }

// A delayed write that is accepted late, because no other write came first, makes no promise on which any
// client relies.
func TestLateClaimMakesNoPromise(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour, impatient), w.actor("b", 0)
	b.is("release", b.Release(t.Context(), b.hold("job", time.Minute)), nil)
	a.wire.next = []string{"parked"}
	q := a.request("job", 30*time.Second)
	l, err := a.Claim(t.Context(), q)
	w.is("a claims", err, backend.ErrUnknownOutcome)
	w.pass(time.Hour)
	same(w, "writes that happened late", a.wire.arrive(), 1)
	same(w, "on a's own clocks it is over", a.state("job").Over, true)
	same(w, "a relies on it until", l.Until(), clock.Instant{})
	if ends := b.refused("job"); ends < 30*time.Second {
		t.Errorf("b, who cannot know, waits only for %v", ends)
	}
}

// C writes lease L, some time later lease M, and dies. The second write shows how far C's clock is. So D, which
// has read nothing before, ends L earlier by just that time.
func TestClockRecordShowsExpiryEarlier(t *testing.T) {
	w := newWorld(t)
	acknowledge := func(o *claim.Options) { o.Acknowledge = time.Second }
	c, d := w.actor("c", time.Hour, acknowledge), w.actor("d", 0)
	c.hold("L", 60*time.Second)
	m := c.hold("M", 60*time.Second)
	w.pass(40 * time.Second)
	c.extend(m, 0) // U-T is 40 s
	w.pass(10 * time.Second)
	same(w, "d waits for L", d.refused("L").Round(time.Second), 60*time.Second-40*time.Second)
	same(w, "d waits for M", d.refused("M").Round(time.Second), 60*time.Second)
	w.pass(20*time.Second + time.Millisecond)
	d.hold("L", time.Minute)
	d.refused("M")
}

// A domain that goes on writing lets others see, over time, that its unrenewed leases have expired.
func TestClockRecordIsWrittenSeldom(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour, func(o *claim.Options) { o.Acknowledge = 10 * time.Second })
	l := a.hold("job", time.Minute)
	for range 20 {
		w.pass(time.Second)
		a.extend(l, 0)
	}
	at, ok, err := w.memory.Open().Acknowledged(t.Context(), "a")
	if want := (clock.Instant{}.Add(time.Hour + 11*time.Second)); err != nil || !ok || at != want {
		t.Errorf("acknowledged %v, %v, %v, and not last at %v", at, ok, err, want)
	}
}

// A claim of a held name fails, even for its holder. Expire of an expired name fails.
func TestClaimOfAHeldAndExpireOfAVacantNameFail(t *testing.T) {
	w := newWorld(t)
	a, twin := w.actor("a", time.Hour), (*actor)(nil)
	twin = a.onSameMachine("a")
	l := a.hold("job", 30*time.Second)
	a.refused("job")
	twin.refused("job") // the same holder id is another holder
	w.pass(31 * time.Second)
	w.is("expire", twin.Expire(t.Context(), "job"), nil)
	w.is("expire what is expired", twin.Expire(t.Context(), "job"), backend.ErrInvalid)
	w.is("expire what never was", twin.Expire(t.Context(), "nothing"), backend.ErrInvalid)
	w.is("extend what is expired", a.Extend(t.Context(), l, 0), backend.ErrLost)
}

// Concurrent renewals end no tenure, and the lease lasts as long as the longest of them says.
func TestConcurrentExtensionsKeepTheLongestPromise(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	l := a.hold("job", 30*time.Second)
	raced := false
	a.wire.before = func(claim.Swap) {
		if !raced {
			raced = true
			w.pass(time.Second)
			a.extend(l, 0)
		}
	}
	a.extend(l, 20*time.Second) // decided first and arrives last
	same(w, "it is relied on for", a.remains(l), 30*time.Second)
	same(w, "the record says the same", a.state("job").Record.Expiry, l.Until())
}

// A holder can extend its expired lease while no other client has ended it.
func TestExpiredLeaseCanBeExtended(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	l := a.hold("job", 30*time.Second)
	w.pass(time.Hour)
	a.extend(l, 0)
	same(w, "the token", a.state("job").Record.Token, l.Token())
	same(w, "it is relied on for", a.remains(l), 30*time.Second)
}

// The outdated knowledge of a client does no harm, however much has changed since.
func TestOutdatedClientIsHarmless(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	la := a.hold("job", 30*time.Second)
	b.refused("job")
	w.pass(31 * time.Second)
	lb := b.hold("job", 30*time.Second)
	w.pass(31 * time.Second)
	w.is("a extends", a.Extend(t.Context(), la, 0), backend.ErrLost)
	w.is("a releases", a.Release(t.Context(), la), nil)
	same(w, "b still holds it", b.state("job").Record.Token, lb.Token())
	w.is("expiry of b's by a, at sight", a.Expire(t.Context(), "job"), backend.ErrHeld)
}

// At exactly the expiry the lease still lasts. One nanosecond later, on both clocks, another client may end it.
func TestExpiryIsStrict(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.hold("job", 30*time.Second)
	w.pass(30 * time.Second)
	w.is("at the end", a.Expire(t.Context(), "job"), backend.ErrHeld)
	a.clocks.move(1, 0)
	w.is("when one clock is past it", a.Expire(t.Context(), "job"), backend.ErrHeld)
	a.clocks.move(0, 1)
	w.is("when both are", a.Expire(t.Context(), "job"), nil)
}

// Namespaces do not affect each other.
func TestNamespacesAreIsolated(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	other, err := w.memory.OpenNamespace("other", false)
	if err != nil {
		t.Fatal(err)
	}
	b := w.process("b", newHands(0), "b", other)
	a.hold("job", time.Minute)
	same(w, "the token in the other", b.hold("job", time.Minute).Token(), 1)
}
