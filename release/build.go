package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// target is a system that the command is compiled for, as Go names it.
type target struct{ system, processor string }

func (t target) String() string { return t.system + "/" + t.processor }

// allTargets are the systems of a release.
var allTargets = []target{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// work is a release while it is made.
type work struct {
	source
	targets  []target
	out      string            // the files of the release
	scratch  string            // what ends with the run
	programs map[target]string // the compiled commands, below out
	texts    documents
	archives map[target]string // the archives for macOS and Linux, below out
	files    []string          // the paths of the files of the release, in the order in which they were made
}

// build makes all files of a release in a directory.
func build(from source, targets []target, out string) (*work, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) > 0 {
		return nil, fmt.Errorf("%s is not an empty directory: a release is not mixed with other files", out)
	}
	scratch, err := os.MkdirTemp("", "leasekeeper-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	w := &work{source: from, targets: targets, out: out, scratch: scratch, programs: make(map[target]string), archives: make(map[target]string)}
	for _, step := range []func() error{w.compile, w.document, w.archive, w.pack, w.containers, w.kubernetes, w.formula, w.materials, w.sum} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// add returns the path of a new file of the release.
func (w *work) add(format string, args ...any) string {
	path := filepath.Join(w.out, fmt.Sprintf(format, args...))
	w.files = append(w.files, path)
	return path
}

// compile makes the command for each target.
func (w *work) compile() error {
	for _, t := range w.targets {
		suffix := ""
		if t.system == "windows" {
			suffix = ".exe"
		}
		path := w.add("leasekeeper_%s_%s_%s%s", w.number(), t.system, t.processor, suffix)
		if err := w.compileFor(t, path); err != nil {
			return err
		}
		w.programs[t] = path
	}
	return nil
}

// compileFor makes the command for one target: static, stripped, and without paths of this machine.
func (w *work) compileFor(t target, path string) error {
	stamp := fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%s", w.version, w.commit)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", path, "./cmd/leasekeeper")
	cmd.Dir = w.dir
	// GOFLAGS and the levels of processors may differ between machines.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.system, "GOARCH="+t.processor,
		"GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile for %v: %w\n%s", t, err, strings.TrimSpace(string(said)))
	}
	return nil
}
