package endpoints

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
)

func TestStreamsAreRetriedUntilTheStoreRefuses(t *testing.T) {
	refused, broke := status.Error(codes.NotFound, "no"), status.Error(codes.Unavailable, "broke")
	s, err := Open(&Store{
		Name:     "the store",
		Answered: func(err error) bool { return err == refused },
		Kind:     func(error) error { return backend.ErrUnavailable },
	}, Config{Endpoints: []string{"host"}}, func(*grpc.ClientConn) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	r := s.Retries("watching")
	r.Begin()
	if err := r.After(t.Context(), broke); err != nil {
		t.Errorf("a broken stream is not retried: %v", err)
	}
	if err := r.After(t.Context(), refused); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a refusal: %v", err)
	}
	if err := r.After(ended, broke); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	r.failures = maxRetries - 1
	if err := r.After(t.Context(), broke); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("after %d failures: %v", maxRetries, err)
	}
	r.Succeeded()
	if err := r.After(t.Context(), broke); err != nil {
		t.Errorf("a failure after a success is not retried: %v", err)
	}
	r.failures, r.began = maxRetries-1, r.began.Add(-2*steady)
	if err := r.After(t.Context(), broke); err != nil || r.failures != 1 {
		t.Errorf("the end of a stream that lasted counts with earlier failures: %d, %v", r.failures, err)
	}
}
