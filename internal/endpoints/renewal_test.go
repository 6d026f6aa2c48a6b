package endpoints

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
)

type namedLease string

func (l namedLease) Name() string { return string(l) }

// taking opens a set with that number of endpoints. Nothing connects to them.
func taking(t *testing.T, endpoints int) *Set[int] {
	t.Helper()
	cfg := Config{}
	for i := range endpoints {
		cfg.Endpoints = append(cfg.Endpoints, fmt.Sprint("host", i))
	}
	n := -1
	s, err := Open(&Store{Name: "the store"}, cfg, func(*grpc.ClientConn) int { n++; return n })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The attempts of a call go round the endpoints, but not to the endpoint of its oldest attempt, which continues.
func TestAttemptsAvoidTheEndpointOfTheOldest(t *testing.T) {
	for endpoints, want := range map[int][]int{1: {0, 1, 1, 1}, 2: {0, 1, 1, 1}, 3: {0, 1, 2, 1}} {
		s := taking(t, endpoints)
		r, end := s.BeginRenewal(t.Context(), []backend.Lease{namedLease("a")})
		var got []int
		var own []int64
		for range want {
			w, number := s.Take(r, own...)
			got, own = append(got, w), append(own[:min(1, len(own))], number)
		}
		end()
		if !slices.Equal(got, want) {
			t.Errorf("%d endpoints: %v, want %v", endpoints, got, want)
		}
	}
}

// A hedge begins at another endpoint than the calls that it hedges, also when the first of theirs is preferred again.
func TestHedgesAvoidTheEndpointsOfTheirCalls(t *testing.T) {
	s := taking(t, 2)
	r, end := s.BeginRenewal(t.Context(), []backend.Lease{namedLease("a"), namedLease("b")})
	_, first := s.Take(r)
	s.Leave(first)
	_, second := s.Take(r, first)
	s.Leave(second)
	for what, want := range map[string]int{"a": 1, "b": 1, "c": 0} {
		hedge, end := s.BeginRenewal(backend.Hedge(t.Context()), []backend.Lease{namedLease(what)})
		if w, _ := s.Take(hedge); w != want {
			t.Errorf("the hedge of %s takes endpoint %d", what, w)
		}
		end()
	}
	other, endOther := s.BeginRenewal(t.Context(), []backend.Lease{namedLease("a")})
	if w, _ := s.Take(other); w != 0 {
		t.Errorf("a call that is no hedge takes endpoint %d", w)
	}
	endOther()
	end()
	hedge, end := s.BeginRenewal(backend.Hedge(t.Context()), []backend.Lease{namedLease("a")})
	defer end()
	if w, _ := s.Take(hedge); w != 0 {
		t.Errorf("a hedge of what has ended takes endpoint %d", w)
	}
}

// A hedge takes an endpoint that no call has taken, if there is one.
func TestHedgesTakeAFreeEndpoint(t *testing.T) {
	s := taking(t, 3)
	r, end := s.BeginRenewal(t.Context(), []backend.Lease{namedLease("a")})
	defer end()
	_, first := s.Take(r)
	s.Leave(first)
	s.Take(r, first)
	hedge, end := s.BeginRenewal(backend.Hedge(t.Context()), []backend.Lease{namedLease("a")})
	defer end()
	if w, _ := s.Take(hedge); w != 2 {
		t.Errorf("the hedge takes endpoint %d", w)
	}
}
