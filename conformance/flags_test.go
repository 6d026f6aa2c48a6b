package conformance

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Operators have flags of etcd in their files. The server knows each of them, or says what to write instead.
func TestEveryFlagOfEtcdIsKnownOrExplained(t *testing.T) {
	needsBoth(t)
	help, _ := exec.Command(binaries.server[etcd], "--help").CombinedOutput()
	var flags []string
	for _, found := range regexp.MustCompile(`(?m)^  --([a-z0-9-]+)`).FindAllStringSubmatch(string(help), -1) {
		flags = append(flags, found[1])
	}
	if slices.Sort(flags); len(flags) < 80 {
		t.Fatalf("the help of etcd names only %v", flags)
	}
	for _, name := range slices.Compact(flags) {
		if name == "version" || name == "help" {
			continue
		}
		// Without a value, or with one that no setting takes, the server never starts.
		out, err := exec.Command(binaries.server[leasekeeper], "serve", "--data-dir", "/dev/null/none", "--listen", "-", "--"+name+"=").CombinedOutput()
		if text := string(out); err == nil || strings.Contains(text, "unknown flag") {
			t.Errorf("--%s: %s", name, text)
		}
	}
}
