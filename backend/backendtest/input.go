package backendtest

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// inputTests are about invalid input, and contexts that end.
var inputTests = []test{
	{name: "IllegalNames", run: testBadNames},
	{name: "IllegalTTLs", run: testBadTTLs},
	{name: "IllegalClaims", run: testBadClaims},
	{name: "ForeignLeases", run: testForeign},
	{name: "EndedContexts", run: testEnded},
}

func testBadNames(s *suite) {
	a := s.claimer("a")
	for _, name := range []string{"", "/", "a//b", "../a", "a/.", "a\x00b", "\xff", strings.Repeat("x", 10<<10)} {
		l, _, err := a.Claim(s.Context(), a.request(name, false))
		if l != nil || !errors.Is(err, backend.ErrInvalid) {
			s.Errorf("Claim(%.20q): %v, %v", name, l, err)
		}
		_, err = a.Get(s.Context(), name)
		s.is("Get", err, backend.ErrInvalid)
	}
	long := s.name(strings.Repeat("x", backend.MaxName-len(s.name(""))))
	a.hold(long)
}

func testBadTTLs(s *suite) {
	a := s.claimer("a")
	limits := a.Limits()
	if limits.MinTTL <= 0 || limits.MaxTTL < limits.MinTTL {
		s.Errorf("limits: %+v", limits)
	}
	for _, ttl := range []time.Duration{0, -1, -time.Hour, math.MinInt64, limits.MinTTL - 1, limits.MaxTTL + 1, math.MaxInt64} {
		if ttl >= limits.MinTTL && ttl <= limits.MaxTTL {
			continue // the largest TTL of all may be allowed
		}
		claim := a.request(s.name("ttl"), false)
		claim.TTL = ttl
		_, _, err := a.Claim(s.Context(), claim)
		s.is("Claim for "+ttl.String(), err, backend.ErrInvalid)
	}
	for i, ttl := range []time.Duration{limits.MinTTL, limits.MaxTTL} {
		claim := a.request(s.name("ttl/"+string(rune('a'+i))), false)
		claim.TTL = ttl
		l, g, err := a.Claim(s.Context(), claim)
		if err != nil || !g.Held || g.TTL < ttl {
			s.Fatalf("Claim for %v: %+v, %v", ttl, g, err)
		}
		a.release(l)
	}
}

func testBadClaims(s *suite) {
	a := s.claimer("a")
	for what, spoil := range map[string]func(*backend.Claim){
		"no id":          func(c *backend.Claim) { c.ID = backend.ID{} },
		"no holder":      func(c *backend.Claim) { c.Holder = backend.Holder{} },
		"a holder's id":  func(c *backend.Claim) { c.Holder.ID = "\xff" },
		"a long card":    func(c *backend.Claim) { c.Holder.Card.Text = strings.Repeat("x", backend.MaxCardText+1) },
		"a broken card":  func(c *backend.Claim) { c.Holder.Card.Text = "\xff" },
		"a long host":    func(c *backend.Claim) { c.Holder.Card.Host = strings.Repeat("x", backend.MaxHolderID+1) },
		"a control code": func(c *backend.Claim) { c.Holder.ID = "a\x1b[2J" },
	} {
		claim := a.request(s.name("bad"), false)
		spoil(&claim)
		_, _, err := a.Claim(s.Context(), claim)
		s.is(what, err, backend.ErrInvalid)
	}
	if i := a.info(s.name("bad")); i.Held {
		s.Errorf("something was left behind: %+v", i)
	}
}

// foreign is a lease of no backend.
type foreign struct{}

func (foreign) Name() string { return "foreign" }

func testForeign(s *suite) {
	a := s.claimer("a")
	_, err := a.Await(s.Context(), foreign{})
	s.is("Await", err, backend.ErrInvalid)
	s.is("Release", a.Release(s.Context(), foreign{}), backend.ErrInvalid)
	l, _ := a.hold(s.name("own"))
	got := a.renew(foreign{}, l)
	s.is("Renew", got[0].Err, backend.ErrInvalid)
	if got[1].Err != nil {
		s.Errorf("a lease beside a foreign one: %v", got[1].Err)
	}
}

// testEnded makes every call with a context that has ended: no call may take long, and the caller must know of
// everything that is left behind.
func testEnded(s *suite) {
	a, b, name := s.claimer("a"), s.claimer("b"), s.name("ended")
	start := time.Now()
	l, _, err := a.Claim(done(), a.request(name, false))
	switch {
	case err == nil:
		s.Error("a claim succeeded in a context that had ended")
	case errors.Is(err, backend.ErrUnknownOutcome) != (l != nil):
		s.Errorf("a claim of unknown outcome comes with a lease, another error with none: %v, %v", l, err)
	case l != nil:
		a.release(l)
	}
	s.kind("Claim", err)
	held, _ := a.hold(name)
	w := b.wait(name)
	_, err = b.Await(done(), w)
	s.is("Await", err, context.Canceled)
	_, err = a.Get(done(), name)
	s.is("Get", err, context.Canceled)
	_, err = a.List(done(), s.prefix, "", 10)
	s.is("List", err, context.Canceled)
	answers := 0
	if err := a.Renew(done(), []backend.Lease{held}, func(int, backend.Renewal) { answers++ }); err == nil && answers == 0 {
		s.Error("Renew returned without an error and without an answer")
	}
	s.kind("Release", a.Release(done(), held))
	if took := time.Since(start); took > s.short+5*time.Second {
		s.Errorf("calls in a context that had ended took %v", took)
	}
	a.release(held)
	b.await(w)
}
