//go:build linux || darwin

package settings

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestStateDirectoryFollowsTheSystem(t *testing.T) {
	for _, c := range []struct {
		system string
		root   bool
		env    map[string]string
		want   string
	}{
		{"linux", false, map[string]string{"HOME": "/home/u"}, "/home/u/.local/state/leasekeeper"},
		{"linux", false, map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/state"}, "/state/leasekeeper"},
		{"linux", false, map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "relative"}, "/home/u/.local/state/leasekeeper"},
		{"linux", true, map[string]string{"HOME": "/root"}, "/var/lib/leasekeeper"},
		{"linux", true, map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/state"}, "/state/leasekeeper"},
		{"freebsd", true, nil, "/var/lib/leasekeeper"},
		{"darwin", false, map[string]string{"HOME": "/Users/u"}, "/Users/u/Library/Application Support/leasekeeper"},
		{"darwin", true, map[string]string{"HOME": "/var/root"}, "/Library/Application Support/leasekeeper"},
		{"windows", false, map[string]string{"LOCALAPPDATA": "/C:/u"}, "/C:/u/leasekeeper"},
		{"linux", false, nil, ""},
		{"darwin", false, nil, ""},
		{"windows", false, map[string]string{"HOME": "/home/u"}, ""},
	} {
		got, err := stateDir(c.system, c.root, func(key string) string { return c.env[key] })
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s, root %v, %v: %q, %v; want %q", c.system, c.root, c.env, got, err, c.want)
		}
	}
	for path, want := range map[string]string{"/a b/%c?#.db": "sqlite:/a%20b/%25c%3F%23.db", "C:/u/leases.db": "sqlite:/C:/u/leases.db"} {
		if got := FileStore(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// Only its owner can use the state directory.
func TestStateDirectoryIsPrivate(t *testing.T) {
	state := filepath.Join(t.TempDir(), "not", "there")
	t.Setenv("XDG_STATE_HOME", state)
	if _, err := localStore(io.Discard); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(state, "leasekeeper"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}
