package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// entry is a file or a directory of an archive.
type entry struct {
	name  string // with slashes, and with one at the end if it is a directory
	mode  fs.FileMode
	data  []byte
	owner int // user and group
}

// archive makes an archive for each target: the program and its texts, in a directory of the archive's name.
func (w *work) archive() error {
	for _, t := range w.targets {
		base := "leasekeeper_" + w.number() + "_" + t.system + "_" + t.processor
		entries, err := w.archived(t, base)
		if err != nil {
			return err
		}
		if t.system == "windows" {
			if err := create(w.add("%s.zip", base), func(out io.Writer) error { return writeZip(out, w.when, entries) }); err != nil {
				return err
			}
			continue
		}
		file := w.add("%s.tar.gz", base)
		w.archives[t] = file
		if err := create(file, func(out io.Writer) error { return writeTarGz(out, w.when, entries) }); err != nil {
			return err
		}
	}
	return nil
}

// archived returns the entries of the archive for a target.
func (w *work) archived(t target, base string) ([]entry, error) {
	program, err := os.ReadFile(w.programs[t])
	if err != nil {
		return nil, err
	}
	name := "leasekeeper"
	if t.system == "windows" {
		name += ".exe"
	}
	entries := []entry{
		{name: name, mode: 0o755, data: program},
		{name: "LICENSE", mode: 0o644, data: w.texts.licence},
		{name: "THIRD_PARTY_LICENCES", mode: 0o644, data: w.texts.thirdParty},
	}
	for _, file := range []string{"README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(w.dir, file))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: file, mode: 0o644, data: text})
	}
	for _, page := range slices.Sorted(maps.Keys(w.texts.manual)) {
		entries = append(entries, entry{name: "man/man1/" + page, mode: 0o644, data: w.texts.manual[page]})
	}
	for _, shell := range slices.Sorted(maps.Keys(shells)) {
		entries = append(entries, entry{name: "completions/" + shells[shell], mode: 0o644, data: w.texts.completions[shell]})
	}
	for i := range entries {
		entries[i].name = path.Join(base, entries[i].name)
	}
	return entries, nil
}

// create writes a file, and reports the error of closing it too.
func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// writeTar writes a tar file whose entries all have one time.
func writeTar(out io.Writer, when time.Time, entries []entry) error {
	w := tar.NewWriter(out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.data)), ModTime: when, Uid: e.owner, Gid: e.owner, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if e.name[len(e.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeTarGz writes a compressed tar file.
func writeTarGz(out io.Writer, when time.Time, entries []entry) error {
	zipped := gzip.NewWriter(out) // its header has no time and no name
	if err := writeTar(zipped, when, entries); err != nil {
		return err
	}
	return zipped.Close()
}

// writeZip writes a zip file whose entries all have one time.
func writeZip(out io.Writer, when time.Time, entries []entry) error {
	w := zip.NewWriter(out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: when}
		h.SetMode(e.mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// gzipped returns data in compressed form.
func gzipped(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data) // a buffer has no errors
	z.Close()
	return b.Bytes()
}
