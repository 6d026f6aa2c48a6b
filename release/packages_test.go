package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// packaged makes the packages of another version with the program that is built, and returns their directory.
func packaged(t testing.TB, version string) string {
	t.Helper()
	first := built(t)
	w := &work{source: first.source, targets: []target{{"linux", "amd64"}}, out: t.TempDir(), scratch: t.TempDir(), programs: first.programs, texts: first.texts}
	w.version = version
	if err := w.pack(); err != nil {
		t.Fatal(err)
	}
	return w.out
}

// Each shell looks for completions in a directory of its own, and zsh in one that the distribution chooses.
func TestPackagesHaveTheCompletionsOfEachShell(t *testing.T) {
	for format, zsh := range map[string]string{"deb": "/usr/share/zsh/vendor-completions/_leasekeeper", "rpm": "/usr/share/zsh/site-functions/_leasekeeper"} {
		texts := built(t).installed(format)
		for path, begin := range map[string]string{
			zsh: "#compdef leasekeeper\n",
			"/usr/share/fish/vendor_completions.d/leasekeeper.fish": "# fish completion for leasekeeper ",
			"/usr/share/bash-completion/completions/leasekeeper":    "# bash completion V2 for leasekeeper ",
		} {
			if text := string(texts[path]); !strings.HasPrefix(text, begin) {
				t.Errorf("%s of the %s begins with %.40q", path, format, text)
			}
		}
	}
}

// The packages go into a Debian with nothing but its essential packages (and rpm, for the other format). testdata/cleanroot
// says in each line what must hold.
func TestPackagesInstallUpgradeAndPurge(t *testing.T) {
	mmdebstrap := required.Program(t, "mmdebstrap", "mmdebstrap", "/usr/bin")
	out := built(t).out
	next := packaged(t, "v0.1.1")
	share := t.TempDir()
	for to, from := range map[string]string{
		"old.deb": filepath.Join(out, "leasekeeper_0.1.0-1_amd64.deb"), "old.rpm": filepath.Join(out, "leasekeeper-0.1.0-1.x86_64.rpm"),
		"new.deb": filepath.Join(next, "leasekeeper_0.1.1-1_amd64.deb"), "new.rpm": filepath.Join(next, "leasekeeper-0.1.1-1.x86_64.rpm"),
		"check": filepath.Join("testdata", "cleanroot"),
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(share, to), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, mmdebstrap, "--quiet", "--variant=minbase", `--aptopt=Acquire::Retries "5"`, "--include=rpm", "--format=null",
		"--customize-hook=mkdir $1/share", "--customize-hook=copy-in "+strings.Join([]string{
			filepath.Join(share, "old.deb"), filepath.Join(share, "new.deb"), filepath.Join(share, "old.rpm"), filepath.Join(share, "new.rpm"), filepath.Join(share, "check")}, " ")+" /share",
		"--customize-hook=chroot $1 sh /share/check", "bookworm", "/dev/null")
	cmd.WaitDelay = 10 * time.Second
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a clean Debian: %v\n%s", err, said)
	}
	if !strings.Contains(string(said), "all of it holds") {
		t.Errorf("the checks in a clean Debian did not reach their end:\n%s", said)
	}
}
