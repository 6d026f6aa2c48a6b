package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// A change that is refused because of another one was certainly not made, so it is a failure, and no unknown outcome.
func TestRefusalBecauseOfAnotherChangeIsAFailure(t *testing.T) {
	c := new(client)
	for _, at := range []struct {
		err  error
		code int
		text string
	}{
		{status.Error(codes.Unavailable, fmt.Sprintf("etcdserver: %v", roster.ErrChanging)), command.ExitFailed, "nothing was changed"},
		{status.Error(codes.Unavailable, "etcdserver: no leader"), command.ExitUnreachable, "is not ready"},
	} {
		var known *command.Error
		err := c.explainChange("add a member", at.err)
		if !errors.As(err, &known) || known.Code != at.code || !strings.Contains(err.Error(), at.text) {
			t.Errorf("%v becomes %v with code %d, want %d and %q", at.err, err, known.Code, at.code, at.text)
		}
	}
}
