package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// analyse runs systemd-analyze. It needs no running systemd.
func analyse(t testing.TB, args ...string) {
	t.Helper()
	program := required.Program(t, "systemd", "systemd-analyze", "/usr/bin")
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning", "SYSTEMD_PAGER=")
	if said, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(said), "Unknown") {
		t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, said)
	}
}

// unitFile writes a unit whose command is a program that exists here, as `systemd-analyze verify` demands.
func unitFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	program := built(t).programs[target{"linux", "amd64"}]
	replaced := strings.NewReplacer("/usr/local/bin/leasekeeper", program, "/usr/bin/leasekeeper", program).Replace(text)
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(replaced), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// deployed returns a file of docs/deploy.
func deployed(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(built(t).dir, "docs", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestUnitIsValidAndLittleExposed(t *testing.T) {
	unit := unitFile(t, t.TempDir(), "leasekeeper.service", deployed(t, "leasekeeper.service"))
	analyse(t, "verify", "--man=no", unit)
	analyse(t, "security", "--offline=true", "--threshold=20", "--no-pager", unit)
}

// The drop-in replaces the command of a timer's service.
func TestDropInForTimersIsValid(t *testing.T) {
	dir := t.TempDir()
	unitFile(t, dir, "nightly-backup.service", "[Service]\nType=oneshot\nExecStart=/bin/false\n")
	unitFile(t, dir, "nightly-backup.service.d/lease.conf", strings.ReplaceAll(deployed(t, "lease.conf"), "/usr/local/bin/nightly-backup", "/bin/true"))
	timer := unitFile(t, dir, "nightly-backup.timer", "[Timer]\nOnCalendar=*-*-* 03:15:00 UTC\n\n[Install]\nWantedBy=timers.target\n")
	analyse(t, "verify", "--man=no", timer)
	analyse(t, "verify", "--man=no", filepath.Join(dir, "nightly-backup.service"))
}
