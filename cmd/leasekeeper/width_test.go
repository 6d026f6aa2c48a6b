//go:build linux || darwin

package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// terminalWidth is how many columns a terminal must have for the tables of the command.
const terminalWidth = 100

// printedInColumns runs a command line on a terminal of 100 columns, and returns what it printed there.
func printedInColumns(t *testing.T, args ...string) string {
	t.Helper()
	reader, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 40, Cols: terminalWidth}); err != nil {
		t.Fatal(err)
	}
	printed := make(chan string)
	go func() {
		all, _ := io.ReadAll(reader) // ends with EIO when the terminal is closed
		printed <- string(all)
	}()
	code := run(args, terminal, terminal)
	terminal.Close()
	shown := <-printed
	if code != command.ExitDone {
		t.Errorf("%q exits with code %d and prints\n%s", args, code, shown)
	}
	return shown
}

// checkFits runs a command line on a terminal, and checks that it prints the text and that its lines fit.
func checkFits(t *testing.T, line, text string) {
	t.Helper()
	shown := printedInColumns(t, append([]string{"--color=never"}, strings.Fields(line)...)...)
	if !strings.Contains(shown, text) {
		t.Errorf("`leasekeeper %s` prints no %q, but\n%s", line, text, shown)
	}
	for row := range strings.Lines(shown) {
		if n := utf8.RuneCountInString(strings.TrimRight(row, "\r\n")); n > terminalWidth {
			t.Errorf("`leasekeeper %s` prints a line of %d columns: %q", line, n, row)
		}
	}
}

func TestColoursAreOnATerminalOnly(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	store := settings.FileStore(filepath.Join(t.TempDir(), "leases.db"))
	acquire(t, store, "jobs/nightly", "me")
	ls := []string{"ls", "--store", store}
	if shown := printedInColumns(t, ls...); !strings.Contains(shown, "\x1b[32mme (pid ") {
		t.Errorf("a holder has no colour on a terminal: %q", shown)
	}
	if printed := succeeds(t, ls...); strings.Contains(printed, "\x1b") {
		t.Errorf("colours are in a pipe: %q", printed)
	}
}

// Names, holders, reasons and users are as long as they are in practice. The table of a cluster is checked with its live view.
func TestTablesFitATerminalOfAHundredColumns(t *testing.T) {
	const (
		name   = "jobs/nightly-backup-of-the-orders-database"
		holder = "orders-worker-7f9c4d5b8-x2k4p.orders.svc.cluster.local/4711"
		reason = "the backup of this night hangs in its second step, and the disk behind it is replaced before noon"
	)
	server := launchAt(t, t.TempDir(), "--bcrypt-cost", "4", "--audit=true")
	t.Setenv(settings.EndpointVariable, server.endpoint)
	file := settings.FileStore(filepath.Join(t.TempDir(), "leases.db"))
	for _, store := range []string{file, "leasekeeper://" + server.endpoint + "/"} {
		succeeds(t, "acquire", name, "--ttl", "10m", "--holder", holder, "--store", store)
		succeeds(t, "revoke", name, "--now", "--reason", reason, "--store", store)
		succeeds(t, "acquire", name, "--ttl", "10m", "--holder", holder, "--store", store)
		succeeds(t, "pin", name, "--reason", reason, "--store", store)
		for _, line := range []string{"ls", "show " + name, "history " + name} {
			checkFits(t, line+" --store "+store, "orders-worker")
		}
	}
	succeeds(t, "user", "add", "orders-backup", "--no-password")
	succeeds(t, "role", "add", "backup-of-databases")
	succeeds(t, "role", "grant", "backup-of-databases", "--name-prefix", "jobs/nightly-backup-of-", "--right", "hold,watch")
	succeeds(t, "user", "grant", "orders-backup", "backup-of-databases")
	lease := succeeds(t, "lease", "grant", "600", "-o", "json")
	_, lease, _ = strings.Cut(lease, `"id": "`)
	lease, _, _ = strings.Cut(lease, `"`)
	for line, text := range map[string]string{
		"status --store " + file: "round trip", "floor show --store " + file: "highest token", "status": "healthy", "member list": "voter",
		"lease list": lease, "lease show " + lease: "remaining", "access unowned": name, "audit": "name.pin", "user list": "backup-of-databases",
		"user quota orders-backup": "watchers", "role list": "backup-of-databases", "role show backup-of-databases": "hold, watch", "explain": "first observation",
	} {
		checkFits(t, line, text)
	}
}
