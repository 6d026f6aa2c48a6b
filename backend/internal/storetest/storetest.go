package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Record returns a record with a holder.
func Record(name string, token backend.Token) claim.Record {
	return claim.Record{Name: name, Holder: "me", Token: token, Op: claim.NewOp(), Incarnation: backend.ID(claim.NewOp()), Domain: "d", TTL: time.Second}
}

// Swap writes a record over the one with an op, which must succeed, and returns it.
func Swap(t testing.TB, s claim.Store, old claim.Op, r claim.Record) claim.Record {
	t.Helper()
	if done, err := s.Swap(t.Context(), claim.Swap{Old: old, Record: r, Owner: true}); !done || err != nil {
		t.Fatal(done, err)
	}
	return r
}

// Remove removes a record as an operator should who wants tokens to keep growing: it raises the floor first.
func Remove(t testing.TB, s claim.Store, name string) {
	t.Helper()
	f, err := s.Get(t.Context(), name)
	if err == nil {
		_, err = s.RaiseFloor(t.Context(), f.Record.Token)
	}
	if err != nil {
		t.Fatal(err)
	}
	if done, err := s.Remove(t.Context(), name, f.Record.Op); !done || err != nil {
		t.Fatal(done, err)
	}
}

// Request returns a claim with an id of its own.
func Request(name, holder string, ttl time.Duration) claim.Request {
	q := claim.Request{Name: name, Holder: backend.Holder{ID: holder}, TTL: ttl}
	_, _ = rand.Read(q.ID[:]) // never fails
	return q
}

// Take claims a name as soon as it is free. again are the errors after which it tries again.
func Take(ctx context.Context, c *claim.Client, q claim.Request, again ...error) (*claim.Lease, error) {
	for {
		l, err := c.Claim(ctx, q)
		if ctx.Err() != nil || !is(err, append(again, backend.ErrHeld, backend.ErrContention)) {
			return l, err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func is(err error, kinds []error) bool {
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Says fails unless an error is of this kind, of no other, and contains all parts.
func Says(t testing.TB, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	for _, other := range []error{backend.ErrUnavailable, backend.ErrUnknownOutcome, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrContention, backend.ErrLost} {
		if other != kind && errors.Is(err, other) {
			t.Errorf("%v is also %v", err, other)
		}
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
