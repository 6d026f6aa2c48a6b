package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

func TestFailedCommandPrintsOneLineAndExitsWithItsCode(t *testing.T) {
	for _, c := range []struct {
		args string
		want int
	}{
		{"", command.ExitDone},
		{"help", command.ExitDone},
		{"version", command.ExitDone},
		{"lease", command.ExitDone},
		{"nonsense", command.ExitUsage},
		{"lease nonsense", command.ExitUsage},
		{"serve --nonsense", command.ExitUsage},
		{"serve nonsense", command.ExitUsage},
		{"serve --listen nonsense", command.ExitUsage},
		{"serve --listen :0", command.ExitUsage},
		{"serve --log-level nonsense", command.ExitUsage},
		{"serve --config /nonsense", command.ExitUsage},
		{"serve --listen 203.0.113.1:0", command.ExitFailed},
		{"status --timeout nonsense", command.ExitUsage},
		{"lease show nonsense", command.ExitUsage},
		{"status --endpoint 127.0.0.1:1", command.ExitUnreachable},
		{"lease list --endpoint 127.0.0.1:1", command.ExitUnreachable},
		{"lease grant 60 --endpoint 127.0.0.1:1", command.ExitUnreachable},
		{"lease show 12 --endpoint 127.0.0.1:1", command.ExitUnreachable},
		{"lease revoke 12 --endpoint 127.0.0.1:1", command.ExitUnreachable},
	} {
		var stderr strings.Builder
		if got := run(strings.Fields(c.args), io.Discard, &stderr); got != c.want {
			t.Errorf("leasekeeper %s: code %d, want %d; it wrote %q", c.args, got, c.want, &stderr)
		}
		if lines := strings.Count(stderr.String(), "\n"); lines > 1 {
			t.Errorf("leasekeeper %s: %d lines instead of one sentence: %q", c.args, lines, &stderr)
		}
	}
}

func TestJoinedErrorsArePrintedInOneLine(t *testing.T) {
	var stderr strings.Builder
	code := command.Report(errors.Join(errors.New("one"), command.WrongUsage("two")), &stderr)
	if code != command.ExitUsage || stderr.String() != "leasekeeper: one; two\n" {
		t.Errorf("code %d, %q", code, &stderr)
	}
}
