package endpointstest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// WaitLimit bounds every wait for something that should happen at once.
const WaitLimit = time.Minute

// TTL is the TTL of the claims that [NewClaim] returns. It is long, because the tests do not renew, and a busy machine is
// slow.
const TTL = time.Minute

// Limited returns a context that ends after [WaitLimit].
func Limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), WaitLimit)
	t.Cleanup(cancel)
	return ctx
}

// Unique returns a name that no other test uses.
func Unique(last string) string {
	b := make([]byte, 6)
	rand.Read(b)
	return "test-" + hex.EncodeToString(b) + "/" + last
}

// Is fails the test if an error is not of a kind.
func Is(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v, want %v", err, kind)
	}
}

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(WaitLimit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", WaitLimit, what)
		}
	}
}

// OK ends the test if there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// NewClaim returns a claim with an ID of its own.
func NewClaim(name string, wait bool) backend.Claim {
	c := backend.Claim{Name: name, Wait: wait, TTL: TTL, Holder: backend.Holder{ID: "h", Card: backend.Card{Host: "here", PID: 1}}}
	rand.Read(c.ID[:])
	return c
}

// Hold claims a free name.
func Hold(t testing.TB, b backend.Backend, name string) (backend.Lease, backend.Grant) {
	t.Helper()
	l, g, err := b.Claim(Limited(t), NewClaim(name, false))
	OK(t, err)
	if !g.Held || g.Token == 0 {
		t.Fatalf("%s is free, and not held: %+v", name, g)
	}
	return l, g
}

// Enqueue claims a name that is held, and waits in its queue.
func Enqueue(t testing.TB, b backend.Backend, name string) backend.Lease {
	t.Helper()
	l, g, err := b.Claim(Limited(t), NewClaim(name, true))
	OK(t, err)
	if g.Held {
		t.Fatalf("%s is held twice: %+v", name, g)
	}
	return l
}

// Renew renews one lease.
func Renew(t testing.TB, b backend.Backend, l backend.Lease) backend.Renewal {
	t.Helper()
	var got backend.Renewal
	OK(t, b.Renew(Limited(t), []backend.Lease{l}, func(_ int, r backend.Renewal) { got = r }))
	return got
}
