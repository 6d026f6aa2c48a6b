package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// shells are the shells that the command prints completions for, and the names of their files.
var shells = map[string]string{"bash": "leasekeeper.bash", "zsh": "_leasekeeper", "fish": "leasekeeper.fish", "powershell": "leasekeeper.ps1"}

// documents are the texts that come with the program.
type documents struct {
	licence     []byte            // of Leasekeeper
	thirdParty  []byte            // the licences of all modules that are linked, first as a list
	manual      map[string][]byte // man pages by file name
	completions map[string][]byte // by shell
}

// document collects the texts that come with the program. It runs the program on this machine for some.
func (w *work) document() error {
	if err := w.license(); err != nil {
		return err
	}
	program, err := w.programForHere()
	if err != nil {
		return err
	}
	pages := filepath.Join(w.scratch, "manual")
	if err := os.Mkdir(pages, 0o755); err != nil {
		return err
	}
	if _, err := output(w.scratch, program, "manpages", pages); err != nil {
		return err
	}
	entries, err := os.ReadDir(pages)
	if err != nil {
		return err
	}
	w.texts.manual = make(map[string][]byte)
	for _, e := range entries {
		if w.texts.manual[e.Name()], err = os.ReadFile(filepath.Join(pages, e.Name())); err != nil {
			return err
		}
	}
	w.texts.completions = make(map[string][]byte)
	for shell := range shells { // order: each fills an entry of its own
		if w.texts.completions[shell], err = output(w.scratch, program, "completion", shell); err != nil {
			return err
		}
	}
	return nil
}

// license collects the licences.
func (w *work) license() (err error) {
	if w.texts.licence, err = os.ReadFile(filepath.Join(w.dir, "LICENSE")); err != nil {
		return err
	}
	if w.texts.thirdParty, err = output(w.dir, filepath.Join(w.dir, ".ci", "licences")); err != nil {
		return err
	}
	// The standard library of Go is linked too, and is no module.
	goroot, err := output(w.dir, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	library, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "LICENSE"))
	if err != nil {
		return err
	}
	w.texts.thirdParty = append(append(w.texts.thirdParty, "\n==== Go's standard library: LICENSE\n\n"...), library...)
	return nil
}

// programForHere returns the path of a program that runs on this machine.
func (w *work) programForHere() (string, error) {
	here := target{runtime.GOOS, runtime.GOARCH}
	if path := w.programs[here]; path != "" {
		return path, nil
	}
	path := filepath.Join(w.scratch, "leasekeeper")
	return path, w.compileFor(here, path)
}

// output runs a program and returns its standard output.
func output(dir, program string, args ...string) ([]byte, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("%s %s: %v: %s", filepath.Base(program), strings.Join(args, " "), err, bytes.TrimSpace(failed.Stderr))
	}
	return out, err
}
