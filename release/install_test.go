package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// A tag in a clone becomes a module of a proxy of files, as the module proxy makes it, and Go installs the command from
// there. The other modules come from the cache of this machine, so that this needs no network.
func TestGoInstallsTheCommandFromATag(t *testing.T) {
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	const version = "v0.1.0"
	clone, proxy := filepath.Join(t.TempDir(), "clone"), t.TempDir()
	if said, err := exec.Command("git", "clone", "--quiet", "--no-checkout", checkout, clone).CombinedOutput(); err != nil {
		if os.Getenv("LEASEKEEPER_TEST_NO_HISTORY") != "" {
			t.Skipf("without history there is nothing to tag: %s", said)
		}
		t.Fatalf("clone the repository: %v\n%s", err, said)
	}
	if _, err := git(clone, "tag", version); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(proxy, "github.com", "leasekeeper", "leasekeeper", "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	packed, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	if err := zip.CreateFromVCS(packed, module.Version{Path: rootModule, Version: version}, clone, version, ""); err != nil {
		t.Fatalf("the tag does not make a module: %v", err)
	}
	mod, err := git(clone, "show", version+":go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": version + "\n", version + ".mod": mod + "\n", version + ".info": `{"Version":"` + version + `"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := output(checkout, "go", "env", "GOMODCACHE")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	cmd := exec.Command("go", "install", "-trimpath", "-ldflags=-s -w", rootModule+"/cmd/leasekeeper@"+version)
	cmd.Dir = t.TempDir()
	// A cache of its own keeps the module of the test out of the user's. The cache of compiled packages is common to both.
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+filepath.Join(t.TempDir(), "modules"), "CGO_ENABLED=0", "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOWORK=off",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")+",https://proxy.golang.org", "GOPRIVATE=", "GONOPROXY=none", "GOAMD64=v1", "GOFIPS140=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, said)
	}
	said, err := output(bin, filepath.Join(bin, "leasekeeper"), "version")
	if err != nil || !strings.HasPrefix(string(said), "leasekeeper "+version+" (") {
		t.Errorf("the installed command says %q, %v", said, err)
	}
}
