package node

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// maxKept bounds each data directory that is kept as test data, in bytes.
const maxKept = 1 << 20

// A data directory of each format is kept as test data, and opens: here are the leases, names, tokens and marks that the
// program of that time acknowledged. A new format needs a directory of its own; the older ones stay. That unknown formats
// are refused is in TestUnusableDataDirectoryIsRefused.
func TestKeptDataDirectoriesOfEveryFormatOpen(t *testing.T) {
	kept, err := filepath.Glob("testdata/format-*.tar.gz")
	if err != nil || len(kept) == 0 {
		t.Fatalf("no directories are kept: %v", err)
	}
	if _, err := os.Stat(fmt.Sprintf("testdata/format-%d.tar.gz", record.Format)); err != nil {
		t.Errorf("there is no data directory of the format that this program writes: %v", err)
	}
	for _, path := range kept {
		t.Run(filepath.Base(path), func(t *testing.T) {
			dir := unpacked(t, path)
			for range 2 { // also after this program has written to it
				checkKept(t, dir)
			}
		})
	}
}

// checkKept opens a kept directory and compares what is in it with what was put there: a lease without a key, the name
// "kept" with its holder's lease and a pin, and "gone" and "ticked", which nobody holds and whose last tokens count.
func checkKept(t *testing.T, dir string) {
	t.Helper()
	n, err := Start(context.Background(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	<-n.Ready()
	_, leases, err := n.Leases(t.Context())
	if err != nil || len(leases) != 2 {
		t.Errorf("leases: %v, %v", leases, err)
	}
	names, err := n.Names(t.Context(), []string{"ns/kept", "ns/gone", "ns/ticked"})
	if err != nil || len(names.Names) != 3 {
		t.Fatalf("names: %+v, %v", names, err)
	}
	for i, token := range []int64{2, 3, 5} {
		if s, kept := names.Names[i], i == 0; s.Token != token || s.Held != kept || (s.Pinned != nil) != kept {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
	header, found, err := n.Range(t.Context(), keyspace.RangeRequest{Key: []byte("ns/"), End: []byte("ns0")}, false)
	if err != nil || header.Revision != 6 || len(found.KVs) != 1 || found.KVs[0].CreateRevision != 2 {
		t.Errorf("at revision %d: %+v, %v", header.Revision, found, err)
	}
	_, mark, err := n.Range(t.Context(), keyspace.RangeRequest{Key: record.MarkKey("ns/ticked")}, false)
	if err != nil || len(mark.KVs) != 1 {
		t.Errorf("the mark: %+v, %v", mark, err)
	}
	if st, err := n.Status(t.Context()); err != nil || st.Versions.InUse != 1 {
		t.Errorf("the versions are %+v, %v", st.Versions, err)
	}
}

// unpacked returns a copy of a kept directory.
func unpacked(t *testing.T, path string) string {
	t.Helper()
	packed, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	if info, err := packed.Stat(); err != nil || info.Size() > maxKept {
		t.Fatalf("%s has more than %d bytes, %v", path, maxKept, err)
	}
	text, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for archive := tar.NewReader(text); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o700)
		} else {
			var data []byte
			if data, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(to, data, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
