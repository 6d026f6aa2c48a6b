package guard

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/access"
)

func TestOneRefusalASecondIsLogged(t *testing.T) {
	var r refusals
	now := time.Now()
	for _, step := range []struct {
		after  time.Duration
		others int
		logged bool
	}{{0, 0, true}, {0, 0, false}, {refusalInterval / 2, 0, false}, {refusalInterval / 2, 2, true}, {2 * refusalInterval, 0, true}} {
		now = now.Add(step.after)
		if others, logged := r.due(now); others != step.others || logged != step.logged {
			t.Errorf("%v later: %d others, logged %v", step.after, others, logged)
		}
	}
}

func TestOnlyRefusalsAreLogged(t *testing.T) {
	for err, want := range map[error]bool{
		access.ErrPermissionDenied:                       true,
		access.ErrUserEmpty:                              true,
		status.Error(codes.PermissionDenied, "\x1b[31m"): true,
		status.Error(codes.Unauthenticated, "no"):        true,
		status.Error(codes.NotFound, "no"):               false,
		errors.New("no"):                                 false,
		nil:                                              false,
	} {
		var out bytes.Buffer
		g := &Guard{cfg: Config{Member: new(policyOnly), Log: slog.New(slog.NewTextHandler(&out, nil))}}
		if got := g.note(context.Background(), "/x/Y", err); got != err {
			t.Errorf("%v became %v", err, got)
		}
		if logged := strings.Contains(out.String(), "method=/x/Y"); logged != want || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%v: %q", err, out.String())
		}
	}
}

// Within a second of a line about a refusal, others are counted and not logged.
func TestRefusalIsNotLoggedBeforeItsTime(t *testing.T) {
	var out bytes.Buffer
	g := &Guard{cfg: Config{Member: new(policyOnly), Log: slog.New(slog.NewTextHandler(&out, nil))}}
	g.refusals.next = time.Now().Add(time.Hour)
	for range 3 {
		if err := g.note(context.Background(), "/x/Y", access.ErrUserEmpty); err != access.ErrUserEmpty {
			t.Errorf("the error became %v", err)
		}
	}
	if out.Len() > 0 || g.refusals.others != 3 {
		t.Errorf("%d others, and the log has %q", g.refusals.others, out.String())
	}
}

// policyOnly is a member on which access is not enabled.
type policyOnly struct{ Member }

func (*policyOnly) Access() *access.Policy { return nil }
