package backendtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Config says what to test.
type Config struct {
	// New returns a store for one test.
	New func(t testing.TB) Store
	// Cannot lists the abilities that the backend lacks, in the words of package backend, such as
	// [backend.History].
	Cannot []string
	// TTL is the TTL in tests in which leases expire. They take several TTLs. The default is the least that the
	// backend allows, but at least a second. All other tests use a TTL that is long enough even for a busy
	// machine.
	TTL time.Duration
	// Slack is how late an end may be noticed. The default is half a second.
	Slack time.Duration
	// Bubble runs every test in a bubble of testing/synctest. The store and its clients then live there and use
	// the time in it.
	Bubble bool
	// Serial runs tests one after the other.
	Serial bool
}

// Store is one store under test.
type Store struct {
	// Open returns a new client, as if of another process. The suite closes it.
	Open func(t testing.TB) backend.Backend
	// Delete removes the record of a holder without using the backend. It may be nil: the tests that need it
	// are then skipped.
	Delete func(t testing.TB, name string)
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	if c.Slack == 0 {
		c.Slack = 500 * time.Millisecond
	}
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Backend", backendTests},
		{"Queue", queueTests},
		{"BadInput", inputTests},
		{"Optional", optionalTests},
		{"Finish", finishTests},
		{"Keeper", keeperTests},
		{"KeeperOptions", keeperOptionTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) { c.runTest(t, test) })
			}
		})
	}
}

// test is one test of the suite. what is the optional ability that it needs, or empty.
type test struct {
	name    string
	what    string
	deletes bool // it needs Store.Delete
	ends    bool // leases expire in it, or would if they were not renewed
	run     func(s *suite)
}

// longTTL is the TTL of leases that must not expire.
const longTTL = time.Minute

func (c Config) runTest(t *testing.T, what test) {
	if !c.Bubble {
		if !c.Serial {
			t.Parallel()
		}
		c.runHere(t, what)
		return
	}
	synctest.Test(t, func(t *testing.T) { c.runHere(t, what) })
}

func (c Config) runHere(t *testing.T, what test) {
	s := &suite{TB: t, config: c, store: c.New(t), prefix: "backendtest-" + random(), short: c.TTL}
	if s.short == 0 {
		s.short = max(time.Second, s.open().Limits().MinTTL)
	}
	if s.ttl = s.short; !what.ends {
		s.ttl = max(s.short, longTTL)
	}
	if slices.Contains(c.Cannot, what.what) {
		s.unsupported(what.what)
		return
	}
	if what.deletes && s.store.Delete == nil {
		t.Skip("the store under test offers no way to delete an ownership")
	}
	what.run(s)
}

// suite is the state of one test.
type suite struct {
	testing.TB
	config Config
	store  Store
	prefix string
	ttl    time.Duration // of every claim
	short  time.Duration // Config.TTL: pauses are fractions of it
}

func random() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// name returns a name that only this test uses.
func (s *suite) name(last string) string { return s.prefix + "/" + last }

// open returns a new client.
func (s *suite) open() backend.Backend {
	s.Helper()
	b := s.store.Open(s)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return b
}

// claimer is one client that claims under a holder of its own.
type claimer struct {
	*suite
	backend.Backend
	who backend.Holder
}

func (s *suite) claimer(id string) *claimer {
	return &claimer{suite: s, Backend: s.open(), who: backend.Holder{ID: id, Card: backend.Card{
		Host: "host-of-" + id, PID: 4711, Started: time.Unix(1700000000, 0).UTC(), Text: "text of " + id}}}
}

// request returns a claim with an id of its own.
func (c *claimer) request(name string, wait bool) backend.Claim {
	claim := backend.Claim{Name: name, Holder: c.who, TTL: c.ttl, Wait: wait}
	_, _ = rand.Read(claim.ID[:]) // never fails
	return claim
}

// hold claims a name that must be free.
func (c *claimer) hold(name string) (backend.Lease, backend.Grant) {
	c.Helper()
	l, g, err := c.Claim(c.Context(), c.request(name, false))
	if err != nil || !g.Held || g.Token == 0 || l == nil || l.Name() != name {
		c.Fatalf("%s claims %s, which is free: %v %+v %v", c.who.ID, name, l, g, err)
	}
	return l, g
}

// wait claims a name that must be held, and waits in its queue.
func (c *claimer) wait(name string) backend.Lease {
	c.Helper()
	l, g, err := c.Claim(c.Context(), c.request(name, true))
	if err != nil || g.Held || g.Token != 0 || l == nil {
		c.Fatalf("%s waits for %s: %v %+v %v", c.who.ID, name, l, g, err)
	}
	return l
}

// await waits until the lease's turn has come.
func (c *claimer) await(l backend.Lease) backend.Grant {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), c.ttl+10*time.Second)
	defer cancel()
	g, err := c.Await(ctx, l)
	if err != nil || !g.Held || g.Token == 0 {
		c.Fatalf("%s awaits its turn: %+v, %v", c.who.ID, g, err)
	}
	return g
}

// renew renews leases, and returns the report about each.
func (c *claimer) renew(leases ...backend.Lease) []backend.Renewal {
	c.Helper()
	got := make([]backend.Renewal, len(leases))
	seen := make([]int, len(leases))
	err := c.Renew(c.Context(), leases, func(i int, r backend.Renewal) {
		got[i] = r
		seen[i]++
	})
	if err != nil {
		c.Fatalf("%s renews %d leases: %v", c.who.ID, len(leases), err)
	}
	for i, n := range seen {
		if n != 1 {
			c.Errorf("lease %d of %d was reported %d times", i, len(leases), n)
		}
	}
	return got
}

// keep lets time pass while leases are renewed.
func (c *claimer) keep(d time.Duration, leases ...backend.Lease) {
	c.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(c.short / 4) {
		for i, r := range c.renew(leases...) {
			if r.Err != nil || r.TTL < c.ttl {
				c.Fatalf("%s keeps lease %d: %+v", c.who.ID, i, r)
			}
		}
	}
}

func (c *claimer) release(l backend.Lease) {
	c.Helper()
	if err := c.Release(c.Context(), l); err != nil {
		c.Fatalf("%s releases: %v", c.who.ID, err)
	}
}

// info returns the state of a name.
func (c *claimer) info(name string) backend.Info {
	c.Helper()
	i, err := c.Get(c.Context(), name)
	if err != nil || i.Name != name {
		c.Fatalf("Get(%q): %+v, %v", name, i, err)
	}
	return i
}

// refused claims a held name.
func (c *claimer) refused(name string, by *claimer, t backend.Token) {
	c.Helper()
	l, _, err := c.Claim(c.Context(), c.request(name, false))
	var held *backend.HeldError
	if !errors.As(err, &held) || !errors.Is(err, backend.ErrHeld) || l != nil {
		c.Fatalf("%s claims %s, which %s holds: %v, %v", c.who.ID, name, by.who.ID, l, err)
	}
	if held.Name != name || held.Holder.ID != by.who.ID || held.Token != t || held.Self {
		c.Errorf("the refusal shows %s held by %+v, not by %s with token %d", name, held, by.who.ID, t)
	}
	if held.Ends < 0 || held.Ends > c.longest() {
		c.Errorf("%s is said to be held for another %v, with a TTL of %v", name, held.Ends, c.ttl)
	}
}

// longest is the longest remaining time that a store may report for a lease: it may round up a granted TTL.
func (s *suite) longest() time.Duration { return s.ttl + max(s.ttl/10, time.Second) }

// eventually repeats is until it returns true, for as long as a lease can last, and fails if it never does.
func (s *suite) eventually(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(s.longest() + 10*time.Second); !is(); time.Sleep(s.short / 50) {
		if time.Now().After(end) {
			s.Fatalf("never came: %s", what)
		}
	}
}

// kinds are all kinds of errors that a backend may return.
var kinds = []error{backend.ErrHeld, backend.ErrLost, backend.ErrStale, backend.ErrContention, backend.ErrUnknownOutcome,
	backend.ErrPinned, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrUnsupported, backend.ErrUnavailable, backend.ErrClosed, backend.ErrDone,
	backend.ErrDenied, backend.ErrUnauthenticated,
	context.Canceled, context.DeadlineExceeded}

// kind fails unless an error is of a known kind.
func (s *suite) kind(what string, err error) {
	s.Helper()
	if err != nil && !slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(err, k) }) {
		s.Errorf("%s: an error of no kind: %v", what, err)
	}
}

// late is how late something may be that comes by itself. In real time the machine may be busy.
func (s *suite) late() time.Duration {
	if s.config.Bubble {
		return s.config.Slack
	}
	return s.config.Slack + 5*time.Second
}

// is fails unless an error is of this kind.
func (s *suite) is(what string, err, kind error) {
	s.Helper()
	if !errors.Is(err, kind) {
		s.Errorf("%s: %v, and not %v", what, err, kind)
	}
}
