package namesapi

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
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
