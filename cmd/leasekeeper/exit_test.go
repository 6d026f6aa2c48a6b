package main

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args string
		want int
	}{
		{"", exitDone},
		{"help", exitDone},
		{"version", exitDone},
		{"lease", exitDone},
		{"nonsense", exitUsage},
		{"lease nonsense", exitUsage},
		{"serve --nonsense", exitUsage},
		{"serve nonsense", exitUsage},
		{"serve --listen nonsense", exitUsage},
		{"serve --listen :0", exitUsage},
		{"serve --log-level nonsense", exitUsage},
		{"serve --config /nonsense", exitUsage},
		{"serve --listen 203.0.113.1:0", exitFailed},
		{"status --timeout nonsense", exitUsage},
		{"lease show nonsense", exitUsage},
		{"status --endpoint 127.0.0.1:1", exitUnreachable},
		{"lease list --endpoint 127.0.0.1:1", exitUnreachable},
		{"lease grant 60 --endpoint 127.0.0.1:1", exitUnreachable},
		{"lease show 12 --endpoint 127.0.0.1:1", exitUnreachable},
		{"lease revoke 12 --endpoint 127.0.0.1:1", exitUnreachable},
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

func TestWhatIsToldIsOneLine(t *testing.T) {
	var stderr strings.Builder
	code := report(errors.Join(errors.New("one"), wrongUsage("two")), &stderr)
	if code != exitUsage || stderr.String() != "leasekeeper: one; two\n" {
		t.Errorf("code %d, %q", code, &stderr)
	}
}
