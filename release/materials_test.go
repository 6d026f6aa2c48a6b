package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestArchiveHasTheProgramAndItsTexts(t *testing.T) {
	w := built(t)
	f, err := os.Open(filepath.Join(w.out, "leasekeeper_0.1.0_linux_amd64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	modes := make(map[string]int64)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[strings.TrimPrefix(h.Name, "leasekeeper_0.1.0_linux_amd64/")] = h.Mode
		if !h.ModTime.Equal(w.when) {
			t.Errorf("%s has the time %v", h.Name, h.ModTime)
		}
	}
	for name, mode := range map[string]int64{"leasekeeper": 0o755, "LICENSE": 0o644, "THIRD_PARTY_LICENCES": 0o644, "README.md": 0o644, "CHANGELOG.md": 0o644,
		"man/man1/leasekeeper-serve.1": 0o644, "completions/leasekeeper.bash": 0o644, "completions/_leasekeeper": 0o644, "completions/leasekeeper.fish": 0o644, "completions/leasekeeper.ps1": 0o644} {
		if modes[name] != mode {
			t.Errorf("%s has the mode %o, and should have %o", name, modes[name], mode)
		}
	}
}

func TestZipKeepsModesAndTimes(t *testing.T) {
	when := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	if err := writeZip(&b, when, []entry{{name: "a/leasekeeper.exe", mode: 0o755, data: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if f := r.File[0]; f.Name != "a/leasekeeper.exe" || f.Mode().Perm() != 0o755 || !f.Modified.Equal(when) {
		t.Errorf("the zip has %+v", f.FileHeader)
	}
}

// The stamp of the version and the commit reaches the program.
func TestProgramSaysVersionCommitAndBackends(t *testing.T) {
	w := built(t)
	said, err := output(w.out, w.programs[target{"linux", "amd64"}], "version")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"leasekeeper v0.1.0 (go1.", "\ncommit " + w.commit + "\n", "\nbackends etcd etcds leasekeeper "} {
		if !strings.Contains(string(said), want) {
			t.Errorf("`leasekeeper version` prints %q, without %q", said, want)
		}
	}
}

// A program with all backends stays small enough to be copied about.
func TestProgramHasAtMost50MB(t *testing.T) {
	for system, path := range built(t).programs {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 50_000_000 {
			t.Errorf("the program for %v has %d bytes", system, info.Size())
		}
	}
}

// A program that needs no loader and no library runs in an image that has nothing else, and on every distribution.
func TestProgramsForLinuxAreStaticAndStripped(t *testing.T) {
	for system, path := range built(t).programs {
		if system.system != "linux" {
			continue
		}
		program, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		for _, s := range program.Progs {
			if s.Type == elf.PT_INTERP || s.Type == elf.PT_DYNAMIC {
				t.Errorf("the program for %v has a segment %v, so it is not static", system, s.Type)
			}
		}
		if _, err := program.Symbols(); !errors.Is(err, elf.ErrNoSymbols) {
			t.Errorf("the program for %v has symbols: %v", system, err)
		}
	}
}

func TestBillOfMaterialsHasEveryLinkedModuleWithItsLicence(t *testing.T) {
	w := built(t)
	text, err := os.ReadFile(filepath.Join(w.out, "leasekeeper_0.1.0.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.SPDXVersion != "SPDX-2.3" || b.DataLicense != "CC0-1.0" || b.SPDXID != "SPDXRef-DOCUMENT" || !strings.HasPrefix(b.DocumentNamespace, "https://") {
		t.Errorf("the head of the document is %+v", b)
	}
	versions, ids := make(map[string]string), make(map[string]bool)
	for _, p := range b.Packages {
		versions[p.Name] = p.VersionInfo
		if ids[p.SPDXID] || !regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`).MatchString(p.SPDXID) {
			t.Errorf("%s has the id %q, which another one has too or which is no id", p.Name, p.SPDXID)
		}
		ids[p.SPDXID] = true
		for licence := range strings.SplitSeq(p.LicenseConcluded, " AND ") {
			if !regexp.MustCompile(`^(Apache-2\.0|MIT|ISC|BSD-[23]-Clause|MPL-2\.0)$`).MatchString(licence) {
				t.Errorf("%s has the licence %q", p.Name, p.LicenseConcluded)
			}
		}
	}
	for _, program := range w.programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if versions["std"] != info.GoVersion || len(info.Deps) < 20 {
			t.Errorf("the program was built with %s and %d modules; the document says %s", info.GoVersion, len(info.Deps), versions["std"])
		}
		for _, m := range info.Deps {
			if versions[m.Path] != m.Version {
				t.Errorf("%s %s is linked; the document says %q", m.Path, m.Version, versions[m.Path])
			}
		}
	}
	for _, r := range b.Relationships {
		if r.Element != b.SPDXID && !ids[r.Element] || !ids[r.Related] {
			t.Errorf("a relationship is about a part that is not there: %+v", r)
		}
	}
}

func TestFormulaHasTheChecksumOfEachArchive(t *testing.T) {
	w := built(t)
	text, err := os.ReadFile(filepath.Join(w.out, "leasekeeper.rb"))
	if err != nil {
		t.Fatal(err)
	}
	if len(w.archives) == 0 {
		t.Fatal("there are no archives")
	}
	for _, archive := range w.archives {
		sum, err := sha256Of(archive)
		if err != nil {
			t.Fatal(err)
		}
		want := "/releases/download/v0.1.0/" + filepath.Base(archive) + "\"\n      sha256 \"" + sum + "\"\n"
		if !strings.Contains(string(text), want) {
			t.Errorf("the formula lacks %q:\n%s", want, text)
		}
	}
	if opened, closed := strings.Count(string(text), " do\n")+strings.Count(string(text), "class ")+strings.Count(string(text), "def "), strings.Count(string(text), "end\n"); opened != closed {
		t.Errorf("the formula opens %d blocks and closes %d", opened, closed)
	}
}
