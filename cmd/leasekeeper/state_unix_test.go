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

// TestWorldWritableStateIsRepaired opens the folder of this user's leases, and the file in it, to everybody.
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
	folder := filepath.Join(state, "leasekeeper")
	modes := map[string]os.FileMode{folder: 0o777, filepath.Join(folder, "leases.db"): 0o666}
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
		t.Errorf("it complains of what it has repaired: %s", &stderr)
	}
}

// TestWorldWritableStateOfOthersIsToldOf needs a folder of another user, which only root can make.
func TestWorldWritableStateOfOthersIsToldOf(t *testing.T) {
	if os.Geteuid() != 0 {
		// Every system has a folder that everybody may write to, and that is root's.
		info, err := os.Stat(os.TempDir())
		if err != nil || info.Mode().Perm()&0o002 == 0 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Skipf("%s is not root's, and open to everybody", os.TempDir())
		}
		if err := settings.Protect(os.TempDir(), "another"); err == nil || !strings.Contains(err.Error(), "belongs to user 0") {
			t.Errorf("nothing is said of %s: %v", os.TempDir(), err)
		}
		return
	}
	state := t.TempDir()
	folder := filepath.Join(state, "leasekeeper")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	if err := os.Chown(folder, nobody, -1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o777); err != nil { // not Mkdir's mode, from which the umask is taken
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv(settings.StoreVariable, "")
	var stdout, stderr strings.Builder
	if code := run([]string{"ls"}, &stdout, &stderr); code != command.ExitDone {
		t.Errorf("exit code %d", code)
	}
	says(t, stderr.String(), "leasekeeper: every user may write to "+folder+", which belongs to user 65534", "chmod o-w")
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("another user's folder was changed: %v, %v", info.Mode(), err)
	}
}

// TestWorldWritableDataFolderIsRepaired opens a server's data folder to everybody.
func TestWorldWritableDataFolderIsRepaired(t *testing.T) {
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
