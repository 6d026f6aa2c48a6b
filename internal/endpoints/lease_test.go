package endpoints

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
)

func TestUnitsRoundUpAndDoNotOverflow(t *testing.T) {
	second := Unit(time.Second)
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, math.MaxInt64: 9_223_372_037} {
		if got := second.Count(d); got != want {
			t.Errorf("%v are %d units, want %d", d, got, want)
		}
	}
	for n, want := range map[int64]time.Duration{0: 0, 3: 3 * time.Second, 9_223_372_037: math.MaxInt64, math.MaxInt64: math.MaxInt64, -1: -time.Second} {
		if got := second.Duration(n); got != want {
			t.Errorf("%d units are %v, want %v", n, got, want)
		}
	}
}

func TestStallDoublesUpToAThirdOfTheTimeLeft(t *testing.T) {
	for stalls, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 3: 8 * time.Second, 1000: math.MaxInt64} {
		if got := Stall(context.Background(), stalls); got != want {
			t.Errorf("after %d stalls: %v, want %v", stalls, got, want)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()
	if got := Stall(ctx, 0); got != time.Second {
		t.Errorf("with much time left: %v", got)
	}
	if got := Stall(ctx, 5); got > 2*time.Second || got < time.Second {
		t.Errorf("with six seconds left: %v", got)
	}
}

// owned is a lease of a backend, which is named by a number.
type owned struct {
	backend int
	known   bool
}

func (*owned) Name() string   { return "n" }
func (o *owned) Backend() int { return o.backend }
func (o *owned) Known() bool  { return o.known }

func TestLeaseOfAnotherBackendIsRefused(t *testing.T) {
	known, unknown := &owned{1, true}, &owned{1, false}
	for _, l := range []*owned{known, unknown} {
		if got, err := Own[*owned](1, l); got != l || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
	for _, l := range []backend.Lease{nil, (*owned)(nil), &owned{2, true}, namedLease("n")} {
		if got, err := Own[*owned](1, l); got != nil || !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	if got, err := Known[*owned](1, known); got != known || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Known[*owned](1, unknown); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

// A request that may have had an effect has an unknown outcome, unless the store's answer settles earlier attempts too.
func TestWriteReportsUnknownOutcomes(t *testing.T) {
	refused, lost := status.Error(codes.NotFound, "no"), status.Error(codes.Unavailable, "broke")
	base := Store{
		Answered: func(err error) bool { return err == refused },
		Kind: func(err error) error {
			if err == refused {
				return backend.ErrInvalid
			}
			return backend.ErrUnavailable
		},
	}
	final := base
	final.FinalForAll = true
	for _, c := range []struct {
		store *Store
		err   error
		maybe bool
		want  error
	}{
		{&base, refused, false, backend.ErrInvalid}, {&base, refused, true, backend.ErrUnknownOutcome},
		{&final, refused, true, backend.ErrInvalid}, {&final, lost, true, backend.ErrUnknownOutcome},
		{&base, lost, false, backend.ErrUnavailable}, {&base, context.Canceled, false, context.Canceled},
		{&base, context.Canceled, true, backend.ErrUnknownOutcome}, {&base, backend.ErrClosed, false, backend.ErrClosed},
	} {
		o := c.store.Outcome(c.err)
		o.Maybe = c.maybe
		if err := o.Write("doing it"); !errors.Is(err, c.want) {
			t.Errorf("%v, maybe %v: %v, want %v", c.err, c.maybe, err, c.want)
		}
	}
}
