package clock

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Containers of LXC, and of systemd-nspawn, have a file with an id of their own mounted over that of the kernel.
// It ends with the container while others of the same machine go on, so nobody must take it for a boot.
func TestIDOfAContainerIsNoBoot(t *testing.T) {
	const id = "11111111-2222-4333-8444-555555555555"
	path := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mounted := domainOf(path)
	if mounted == UnknownDomain || !strings.Contains(string(mounted), id) || strings.HasPrefix(string(mounted), "linux/") {
		t.Errorf("of a container: %q", mounted)
	}
	if again := domainOf(path); !mounted.Same(again) {
		t.Errorf("two processes of a container: %q and %q", mounted, again)
	}
	if d := domainOf(path + "x"); d != UnknownDomain {
		t.Errorf("without any: %q", d)
	}
}

func TestSystemDomain(t *testing.T) {
	id, err := os.ReadFile(bootID)
	if err != nil {
		t.Fatal(err)
	}
	if d := SystemDomain(); !strings.Contains(string(d), strings.TrimSpace(string(id))) {
		t.Errorf("%q of boot %s", d, id)
	}
}
