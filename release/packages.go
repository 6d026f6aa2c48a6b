package main

import (
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// scripts are the scripts and the settings that packages contain.
//
//go:embed scripts
var scripts embed.FS

const (
	homepage    = "https://github.com/leasekeeper/leasekeeper"
	summary     = "Leases for programs: a command, a server and a cluster"
	description = summary + `
Leasekeeper gives a name to one holder at a time, until a deadline that the
holder renews. The command runs another command under a lease, kept in
SQLite, PostgreSQL, MongoDB, etcd or Leasekeeper's own server. The server
runs alone or as a cluster, and also speaks etcd's v3 API.`
)

// pack makes the packages for each Linux target.
func (w *work) pack() error {
	for _, t := range w.targets {
		if t.system != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := w.packFor(t, format); err != nil {
				return fmt.Errorf("%s for %v: %w", format, t, err)
			}
		}
	}
	return nil
}

// packFor makes a package of one format.
func (w *work) packFor(t target, format string) error {
	info, err := w.describe(t, format)
	if err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	return create(w.add("%s", packager.ConventionalFileName(info)), func(out io.Writer) error { return packager.Package(info, out) })
}

// describe returns what nfpm must know about a package.
func (w *work) describe(t target, format string) (*nfpm.Info, error) {
	contents, err := w.contents(t, format)
	if err != nil {
		return nil, err
	}
	info := &nfpm.Info{
		Name:        "leasekeeper",
		Arch:        t.processor,
		Platform:    "linux",
		Version:     w.number(),
		Release:     "1",
		Section:     "database",
		Priority:    "optional",
		Maintainer:  "The Leasekeeper project <" + homepage + ">",
		Vendor:      "The Leasekeeper project",
		Homepage:    homepage,
		License:     "Apache-2.0",
		Description: description,
		MTime:       w.when,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Depends:  []string{map[string]string{"deb": "passwd", "rpm": "shadow-utils"}[format]},
			RPM:      nfpm.RPM{BuildHost: "leasekeeper", Summary: summary},
		},
	}
	stages := map[string]*string{
		"preinst": &info.Scripts.PreInstall, "postinst": &info.Scripts.PostInstall,
		"prerm": &info.Scripts.PreRemove, "postrm": &info.Scripts.PostRemove,
	}
	for stage, field := range stages { // order: each fills a field of its own
		if _, err := scripts.Open("scripts/" + format + "/" + stage); err == nil {
			if *field, err = w.stage(format + "/" + stage); err != nil {
				return nil, err
			}
		}
	}
	info = nfpm.WithDefaults(info)
	return info, nfpm.PrepareForPackager(info, format)
}

// contents returns the files of a package.
func (w *work) contents(t target, format string) (files.Contents, error) {
	unit, err := w.unit()
	if err != nil {
		return nil, err
	}
	config, err := w.stage("server.yaml")
	if err != nil {
		return nil, err
	}
	owner := &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o640}
	if format == "rpm" {
		owner.Group = "leasekeeper" // the script before has made it; that of the deb changes the group afterwards
	}
	plain := func(mode os.FileMode) *files.ContentFileInfo {
		return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode}
	}
	all := files.Contents{
		{Source: w.programs[t], Destination: "/usr/bin/leasekeeper", FileInfo: plain(0o755)},
		{Source: unit, Destination: "/usr/lib/systemd/system/leasekeeper.service", FileInfo: plain(0o644)},
		{Source: config, Destination: "/etc/leasekeeper/server.yaml", Type: files.TypeConfigNoReplace, FileInfo: owner},
		{Source: filepath.Join(w.dir, "LICENSE"), Destination: "/usr/share/doc/leasekeeper/copyright", FileInfo: plain(0o644)},
	}
	for path, text := range w.installed(format) { // order: nfpm sorts the files
		staged, err := w.write(format+path, text)
		if err != nil {
			return nil, err
		}
		all = append(all, &files.Content{Source: staged, Destination: path, FileInfo: plain(0o644)})
	}
	return all, nil
}

// installed returns the texts of a package by the paths at which it installs them.
func (w *work) installed(format string) map[string][]byte {
	zsh := map[string]string{"deb": "vendor-completions", "rpm": "site-functions"}[format]
	texts := map[string][]byte{
		"/usr/share/doc/leasekeeper/THIRD_PARTY_LICENCES.gz":    gzipped(w.texts.thirdParty),
		"/usr/share/bash-completion/completions/leasekeeper":    w.texts.completions["bash"],
		"/usr/share/zsh/" + zsh + "/_leasekeeper":               w.texts.completions["zsh"],
		"/usr/share/fish/vendor_completions.d/leasekeeper.fish": w.texts.completions["fish"],
	}
	for name, page := range w.texts.manual { // order: each fills an entry of its own
		texts["/usr/share/man/man1/"+name+".gz"] = gzipped(page)
	}
	return texts
}

// stage copies an embedded file into the scratch directory, where nfpm can read it.
func (w *work) stage(name string) (string, error) {
	text, err := scripts.ReadFile("scripts/" + name)
	if err != nil {
		return "", err
	}
	return w.write(name, text)
}

// write writes a file into the scratch directory.
func (w *work) write(name string, text []byte) (string, error) {
	path := filepath.Join(w.scratch, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, text, 0o644)
}

// unit writes the unit of docs/deploy with the path that a package gives the command.
func (w *work) unit() (string, error) {
	text, err := os.ReadFile(filepath.Join(w.dir, "docs", "deploy", "leasekeeper.service"))
	if err != nil {
		return "", err
	}
	const local = "/usr/local/bin/leasekeeper "
	if n := strings.Count(string(text), local); n != 1 {
		return "", fmt.Errorf("the unit names %s%d times, and should once", local, n)
	}
	return w.write("leasekeeper.service", []byte(strings.Replace(string(text), local, "/usr/bin/leasekeeper ", 1)))
}
