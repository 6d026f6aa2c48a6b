package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// The parts of a bill of materials in the form of SPDX 2.3.
type (
	bill struct {
		SPDXVersion       string         `json:"spdxVersion"`
		DataLicense       string         `json:"dataLicense"`
		SPDXID            string         `json:"SPDXID"`
		Name              string         `json:"name"`
		DocumentNamespace string         `json:"documentNamespace"`
		CreationInfo      creation       `json:"creationInfo"`
		Packages          []billed       `json:"packages"`
		Relationships     []relationship `json:"relationships"`
	}
	creation struct {
		Created  time.Time `json:"created"`
		Creators []string  `json:"creators"`
	}
	billed struct {
		Name             string      `json:"name"`
		SPDXID           string      `json:"SPDXID"`
		VersionInfo      string      `json:"versionInfo"`
		DownloadLocation string      `json:"downloadLocation"`
		FilesAnalyzed    bool        `json:"filesAnalyzed"`
		LicenseConcluded string      `json:"licenseConcluded"`
		LicenseDeclared  string      `json:"licenseDeclared"`
		CopyrightText    string      `json:"copyrightText"`
		Checksums        []checksum  `json:"checksums,omitempty"`
		ExternalRefs     []reference `json:"externalRefs"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const (
	rootModule  = "github.com/leasekeeper/leasekeeper"
	noAssertion = "NOASSERTION"
)

// materials writes the bill of materials: each module that is linked into a program, with its version, checksum and licence.
func (w *work) materials() error {
	licences, err := parseLicences(string(w.texts.thirdParty))
	if err != nil {
		return err
	}
	modules, toolchain, err := w.linked()
	if err != nil {
		return err
	}
	b := bill{SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: "leasekeeper-" + w.version,
		CreationInfo: creation{Created: w.when, Creators: []string{"Tool: leasekeeper-release-" + w.version}}}
	main := newBilled(rootModule, w.version, "Apache-2.0")
	b.Relationships = append(b.Relationships, relationship{b.SPDXID, "DESCRIBES", main.SPDXID})
	b.Packages = append(b.Packages, main)
	parts := []billed{newBilled("std", toolchain, "BSD-3-Clause")}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		m := modules[path]
		if licences[path] == "" {
			return fmt.Errorf("no licence is known of %s, which is linked into the program", path)
		}
		p := newBilled(path, m.Version, licences[path])
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
			// Go's own checksum, of the list of the module's files.
			p.ExternalRefs = append(p.ExternalRefs, reference{"OTHER", "go-module-h1", m.Sum})
		}
		parts = append(parts, p)
	}
	for _, p := range parts {
		b.Packages = append(b.Packages, p)
		b.Relationships = append(b.Relationships, relationship{main.SPDXID, "DEPENDS_ON", p.SPDXID})
	}
	sum := sha256.Sum256(encode(b))
	b.DocumentNamespace = homepage + "/spdx/" + w.version + "-" + hex.EncodeToString(sum[:16])
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return create(w.add("leasekeeper_%s.spdx.json", w.number()), func(out io.Writer) error {
		_, err := out.Write(append(text, '\n'))
		return err
	})
}

// newBilled returns the entry of a Go module.
func newBilled(path, version, licence string) billed {
	location := "https://proxy.golang.org/" + lowered(path) + "/@v/" + lowered(version) + ".zip"
	if path == "std" {
		location = "https://go.dev/dl/" + version + ".src.tar.gz"
	}
	id := "SPDXRef-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(path, "-")
	return billed{Name: path, SPDXID: id, VersionInfo: version, DownloadLocation: location, LicenseConcluded: licence, LicenseDeclared: licence, CopyrightText: noAssertion,
		ExternalRefs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + strings.ToLower(path) + "@" + version}}}
}

// lowered returns a path or version as the module proxy's addresses have it: an exclamation mark stands before each letter
// that was a capital.
func lowered(text string) string {
	return regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(text, func(c string) string { return "!" + strings.ToLower(c) })
}

// linked returns the modules that are linked into any of the programs, by path, and the version of Go.
func (w *work) linked() (modules map[string]*debug.Module, toolchain string, err error) {
	modules = make(map[string]*debug.Module)
	for _, t := range w.targets {
		info, err := buildinfo.ReadFile(w.programs[t])
		if err != nil {
			return nil, "", err
		}
		toolchain = info.GoVersion
		for _, m := range info.Deps {
			if m.Replace != nil {
				return nil, "", fmt.Errorf("%s is replaced: a release is made of published modules", m.Path)
			}
			modules[m.Path] = m
		}
	}
	return modules, toolchain, nil
}

// parseLicences returns the licence of each module from the list at the begin of .ci/licences' output.
func parseLicences(text string) (map[string]string, error) {
	list, _, found := strings.Cut(text, "\n\n====")
	if !found {
		list, _, found = strings.Cut(text, "\n====")
	}
	if !found {
		return nil, fmt.Errorf("the licences have no list of modules")
	}
	licences := make(map[string]string)
	for line := range strings.Lines(list) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("the list of licences has the line %q", line)
		}
		licences[fields[0]] = fields[2]
	}
	return licences, nil
}
