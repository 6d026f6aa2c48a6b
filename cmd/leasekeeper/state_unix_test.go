//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// If every user may write to the state directory or the file in it, the next command removes that right.
func TestWorldWritableStateIsRepaired(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv(settings.StoreVariable, "")
	var stdout, stderr strings.Builder
	ls := func() {
		t.Helper()
		stdout.Reset()
		stderr.Reset()
		if code := run([]string{"ls"}, &stdout, &stderr); code != command.ExitDone {
			t.Fatal(stderr.String())
		}
	}
	ls()
	stateDir := filepath.Join(state, "leasekeeper")
	modes := map[string]os.FileMode{stateDir: 0o777, filepath.Join(stateDir, "leases.db"): 0o666}
	for path, mode := range modes {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	ls()
	for path, mode := range modes {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode&^0o002 {
			t.Errorf("%s has the mode %v, %v", path, info.Mode(), err)
		}
	}
	if stderr.String() != "" {
		t.Errorf("the command warns although it has repaired the modes: %s", &stderr)
	}
}

// Only root can create a directory of another user. Other users check the directory for temporary files, which belongs to
// root.
func TestWorldWritableStateOfAnotherUserIsReported(t *testing.T) {
	if os.Geteuid() != 0 {
		info, err := os.Stat(os.TempDir())
		if err != nil || info.Mode().Perm()&0o002 == 0 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Skipf("%s does not belong to root, or not every user may write to it", os.TempDir())
		}
		if err := settings.Protect(os.TempDir(), "another"); err == nil || !strings.Contains(err.Error(), "belongs to user 0") {
			t.Errorf("Protect does not report %s: %v", os.TempDir(), err)
		}
		return
	}
	state := t.TempDir()
	stateDir := filepath.Join(state, "leasekeeper")
	if err := os.Mkdir(stateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(stateDir, nobody, -1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(stateDir, 0o777); err != nil { // Mkdir would apply the umask to its mode
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv(settings.StoreVariable, "")
	var stdout, stderr strings.Builder
	if code := run([]string{"ls"}, &stdout, &stderr); code != command.ExitDone {
		t.Errorf("exit code %d", code)
	}
	says(t, stderr.String(), "leasekeeper: every user may write to "+stateDir+", which belongs to user 65534", "chmod o-w")
	if info, err := os.Stat(stateDir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the directory of another user was changed: %v, %v", info.Mode(), err)
	}
}

// If every user may write to the data directory, the server removes that right at its start.
func TestWorldWritableDataDirectoryIsRepaired(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r, err := launch(launchOptions{dir: t.TempDir(), args: []string{"--data-dir", dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.kill()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o775 {
		t.Errorf("%s has the mode %v, %v", dir, info.Mode(), err)
	}
}
