package backendtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// backendTests are about what every backend does.
var backendTests = []test{
	{name: "FreeNameIsHeldAtOnce", run: testFree},
	{name: "HeldNameIsRefusedAndNothingIsLeft", run: testHeld},
	{name: "TheSameClaimTwiceIsOneLease", run: testSameClaim},
	{name: "OneHolderIDTwiceIsTwoHolders", run: testSameHolder},
	{name: "RenewedLeaseLasts", ends: true, run: testRenewed},
	{name: "LeaseEndsAfterItsTTLAndNotBefore", ends: true, run: testExpiry},
	{name: "RenewalsAreReportedOneByOne", run: testRenewMany},
	{name: "ReleaseIsIdempotent", run: testRelease},
	{name: "NestedNamesAreIndependent", run: testNesting},
	{name: "TokensGrowForEver", run: testTokens},
	{name: "ListPages", run: testList},
	{name: "OnlyOneHoldsAtATime", run: testExclusion},
	{name: "ClosedBackendReturnsErrClosed", run: testClosed},
	{name: "LeaseOfADeletedRecordIsLost", deletes: true, run: testDeleted},
}

func testFree(s *suite) {
	a, name := s.claimer("a"), s.name("free")
	if i := a.info(name); i.Held {
		s.Errorf("a name that was never claimed is held: %+v", i)
	}
	_, g := a.hold(name)
	if g.TTL < s.ttl || g.TTL > s.longest() {
		s.Errorf("asked for %v and granted %v", s.ttl, g.TTL)
	}
	i := s.claimer("b").info(name)
	if !i.Held || i.Token != g.Token || i.Holder.ID != "a" || i.TTL != g.TTL {
		s.Errorf("Get: %+v, granted %+v", i, g)
	}
	if got, want := i.Holder.Card, a.who.Card; got.Host != want.Host || got.PID != want.PID || got.Text != want.Text || !got.Started.Equal(want.Started) {
		s.Errorf("the card %+v became %+v", want, got)
	}
	if i.Remaining > s.longest() || i.Waiting > 0 {
		s.Errorf("Get: remaining %v of %v, %d waiting", i.Remaining, s.ttl, i.Waiting)
	}
}

func testHeld(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("held")
	l, g := a.hold(name)
	b.refused(name, a, g.Token)
	a.refused(name, a, g.Token)
	a.release(l)
	if i := b.info(name); i.Held {
		s.Errorf("released, and b, who was refused, holds it: %+v", i)
	}
	b.hold(name)
}

func testSameClaim(s *suite) {
	a, name := s.claimer("a"), s.name("same")
	claim := a.request(name, false)
	_, first, err := a.Claim(s.Context(), claim)
	if err != nil {
		s.Fatal(err)
	}
	time.Sleep(s.short / 4)
	l, again, err := a.Claim(s.Context(), claim)
	if err != nil || !again.Held || again.Token != first.Token {
		s.Fatalf("claimed again: %+v, %v; at first %+v", again, err, first)
	}
	a.release(l)
	if i := a.info(name); i.Held {
		s.Errorf("one claim sent twice, released once: %+v", i)
	}
}

func testSameHolder(s *suite) {
	a, twin, name := s.claimer("a"), s.claimer("a"), s.name("twins")
	l, g := a.hold(name)
	twin.refused(name, a, g.Token)
	w := twin.wait(name)
	a.release(l)
	if again := twin.await(w); again.Token <= g.Token {
		s.Errorf("the twin has token %d after %d", again.Token, g.Token)
	}
	for i, r := range a.renew(l) {
		s.is(fmt.Sprint("the first twin renews ", i), r.Err, backend.ErrLost)
	}
}

func testRenewed(s *suite) {
	a, name := s.claimer("a"), s.name("renewed")
	l, g := a.hold(name)
	a.keep(3*s.ttl, l)
	if i := a.info(name); !i.Held || i.Token != g.Token {
		s.Errorf("after three TTLs: %+v, granted %+v", i, g)
	}
}

func testExpiry(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("expiry")
	before := time.Now()
	l, g := a.hold(name)
	var next backend.Grant
	s.eventually("the end of a lease without renewals", func() bool {
		_, got, err := b.Claim(s.Context(), b.request(name, false))
		if next = got; err != nil {
			s.is("b claims", err, backend.ErrHeld)
		}
		return err == nil
	})
	if lasted := time.Since(before); lasted < g.TTL {
		s.Errorf("granted %v, ended after %v", g.TTL, lasted)
	} else if lasted > g.TTL+s.late()+s.ttl/10 {
		s.Errorf("granted %v, lasted %v", g.TTL, lasted)
	}
	if next.Token <= g.Token {
		s.Errorf("token %d after %d", next.Token, g.Token)
	}
	s.is("a renews", a.renew(l)[0].Err, backend.ErrLost)
	a.release(l)
	if i := a.info(name); i.Token != next.Token {
		s.Errorf("a lease that had ended was released, and harmed the next: %+v", i)
	}
}

func testRenewMany(s *suite) {
	const many = 40
	a := s.claimer("a")
	leases := make([]backend.Lease, many)
	for i := range leases {
		leases[i], _ = a.hold(s.name(fmt.Sprint("many/", i)))
	}
	for i := 0; i < many; i += 3 {
		a.release(leases[i])
	}
	for i, r := range a.renew(leases...) {
		if i%3 == 0 {
			s.is(fmt.Sprint("renewal of released lease ", i), r.Err, backend.ErrLost)
		} else if r.Err != nil || r.TTL < s.ttl {
			s.Errorf("renewal of lease %d: %+v", i, r)
		}
	}
	if len(a.renew()) != 0 {
		s.Error("something was reported about nothing")
	}
}

func testRelease(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("release")
	l, g := a.hold(name)
	a.release(l)
	a.release(l)
	if i := b.info(name); i.Held {
		s.Errorf("released, and held: %+v", i)
	}
	_, next := b.hold(name)
	if next.Token <= g.Token {
		s.Errorf("token %d after %d", next.Token, g.Token)
	}
	a.release(l)
	if i := b.info(name); !i.Held || i.Token != next.Token {
		s.Errorf("the lease before was released again, and harmed this one: %+v", i)
	}
}

func testNesting(s *suite) {
	a := s.claimer("a")
	for _, last := range []string{"jobs/nightly", "jobs", "jobs/nightly/x", "jobs/nightl", "jobs/nightly backup", "jobs/ünï/名", "jobs/%2F?#"} {
		a.hold(s.name(last))
	}
	b := s.claimer("b")
	b.refused(s.name("jobs"), a, a.info(s.name("jobs")).Token)
	b.refused(s.name("jobs/ünï/名"), a, a.info(s.name("jobs/ünï/名")).Token)
}

func testTokens(s *suite) {
	name := s.name("tokens")
	var last backend.Token
	for round := range 3 {
		a, b := s.claimer("a"), s.claimer("b")
		l, g := a.hold(name)
		w := b.wait(name)
		a.release(l)
		h := b.await(w)
		if g.Token <= last || h.Token <= g.Token {
			s.Errorf("round %d: tokens %d, %d after %d", round, g.Token, h.Token, last)
		}
		last = h.Token
		b.release(w)
	}
}

func testList(s *suite) {
	a := s.claimer("a")
	var want []string
	for i := range 7 {
		name := s.name(fmt.Sprint("list/", i))
		a.hold(name)
		want = append(want, name)
	}
	a.hold(s.name("lisp"))
	a.hold(s.name("list-not"))
	var got []string
	after := ""
	for range 10 {
		page, err := a.List(s.Context(), s.name("list/"), after, 3)
		if err != nil {
			s.Fatal(err)
		}
		if len(page) > 3 {
			s.Errorf("asked for 3, got %d", len(page))
		}
		for _, i := range page {
			if !i.Held || i.Holder.ID != "a" || i.Token == 0 {
				s.Errorf("listed as %+v", i)
			}
			got, after = append(got, i.Name), i.Name
		}
		if len(page) < 3 {
			break
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("listed %q, there are %q", got, want)
	}
	none, err := a.List(s.Context(), s.name("nothing/"), "", 3)
	if err != nil || len(none) != 0 {
		s.Errorf("listed %+v, %v where nothing is", none, err)
	}
}

// testExclusion lets several clients claim one name again and again.
func testExclusion(s *suite) {
	name := s.name("exclusion")
	var inside atomic.Int32
	var last atomic.Uint64
	var all sync.WaitGroup
	for n := range 6 {
		c := s.claimer(fmt.Sprint("c", n))
		all.Go(func() {
			for round := range 6 {
				l, g, err := c.Claim(s.Context(), c.request(name, round%3 != 2))
				if err != nil {
					s.kind("claim", err)
					continue
				}
				if !g.Held {
					if g, err = c.Await(s.Context(), l); err != nil {
						s.kind("await", err)
						continue
					}
				}
				if inside.Add(1) != 1 {
					s.Errorf("%d hold it at once", inside.Load())
				}
				if before := last.Swap(uint64(g.Token)); before >= uint64(g.Token) {
					s.Errorf("token %d after %d", g.Token, before)
				}
				inside.Add(-1)
				if err := c.Release(s.Context(), l); err != nil {
					s.Errorf("release: %v", err)
				}
			}
		})
	}
	all.Wait()
}

func testClosed(s *suite) {
	a, name := s.claimer("a"), s.name("closed")
	l, _ := a.hold(name)
	if err := a.Close(s.Context()); err != nil {
		s.Fatal(err)
	}
	if err := a.Close(s.Context()); err != nil {
		s.Errorf("closed again: %v", err)
	}
	_, _, err := a.Claim(s.Context(), a.request(s.name("late"), false))
	s.is("Claim", err, backend.ErrClosed)
	_, err = a.Get(s.Context(), name)
	s.is("Get", err, backend.ErrClosed)
	_, err = a.List(s.Context(), "", "", 1)
	s.is("List", err, backend.ErrClosed)
	s.is("Release", a.Release(s.Context(), l), backend.ErrClosed)
	var reported error
	err = a.Renew(s.Context(), []backend.Lease{l}, func(_ int, r backend.Renewal) { reported = r.Err })
	if err == nil {
		err = reported
	}
	s.is("Renew", err, backend.ErrClosed)
	if i := s.claimer("b").info(name); !i.Held {
		s.Errorf("a closed client's lease is gone: %+v", i)
	}
}

func testDeleted(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("deleted")
	l, g := a.hold(name)
	w := b.wait(name)
	s.store.Delete(s, name)
	next := b.await(w)
	if next.Token <= g.Token {
		s.Errorf("token %d after %d", next.Token, g.Token)
	}
	s.is("a renews", a.renew(l)[0].Err, backend.ErrLost)
	a.release(l)
	b.keep(s.short/2, w)
	if i := b.info(name); i.Token != next.Token {
		s.Errorf("after the first released: %+v", i)
	}
}

// done returns a context that has ended.
func done() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
