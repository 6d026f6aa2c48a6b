package namesapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// oldMember is a member whose cluster has a member of an older version.
type oldMember struct{ Member }

func (oldMember) CheckMarks(context.Context) error { return replica.ErrTooNew }

// A program that reads the mark before its work learns there that the tick could not be recorded after it.
func TestMarkIsRefusedIfNoTickCanBeRecorded(t *testing.T) {
	s := startService(t)
	ask := func() error {
		_, err := s.GetMark(t.Context(), &leasekeeperv1.GetMarkRequest{Name: "n"})
		return err
	}
	wantOK(t, ask())
	s.cfg.Member = oldMember{s.cfg.Member}
	err := ask()
	if !errors.Is(err, replica.ErrTooNew) {
		t.Fatalf("refused with %v", err)
	}
	st := status.Convert(s.Answer(t.Context(), err))
	if details := st.Details(); st.Code() != codes.FailedPrecondition || len(details) != 1 || details[0].(*errdetails.ErrorInfo).Reason != "UNSUPPORTED" {
		t.Errorf("the client receives %v, %v", st, details)
	}
}

// The server counts the time of a name that is held on by its own clock, and the client wants it by its own.
func TestNameIsHeldOnForTheDriftBoundLonger(t *testing.T) {
	s := startService(t)
	s.cfg.MaxTTL = time.Hour
	for ms, want := range map[int64]time.Duration{
		0: 0, 1: MinClaimTTL,
		99:        101 * time.Millisecond,
		1000:      1021 * time.Millisecond,
		3_600_000: 3_672_728 * time.Millisecond,
	} {
		got, err := s.holdOf(ms)
		if err != nil || got != want {
			t.Errorf("%d ms: %v, %v, want %v", ms, got, err, want)
		}
		// A server's clock that is as fast as it may be, and a client's that is as slow.
		if client := got * 99 / 101; client < time.Duration(ms)*time.Millisecond {
			t.Errorf("%d ms: it is held on for %v of the client", ms, client)
		}
	}
	_, err := s.holdOf(3_600_001)
	wantEqual(t, "a longer time is refused", errors.Is(err, backend.ErrInvalid), true)
}
