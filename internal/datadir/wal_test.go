package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// A closed log that does not end with a trailer is damaged.
func TestClosedLogWithoutTrailerIsDamaged(t *testing.T) {
	closed := []byte(walTrailer + "\x08\x00\x00\x00")
	for _, tried := range []struct {
		what    string
		text    []byte
		newest  bool
		damaged bool
	}{
		{"closed", closed, false, false},
		{"closed, and the newest", closed, true, false},
		{"without an end", nil, false, true},
		{"without an end, and the newest", nil, true, false},
		{"reserved and not written", make([]byte, 3*walBlock), true, false},
		{"with the end of another", []byte(walTrailer + "\x09\x00\x00\x00"), false, true},
	} {
		err := checkWAL(bytes.NewReader(tried.text), "000007.log", 7, tried.newest)
		if errors.As(err, new(*record.DamagedError)) != tried.damaged {
			t.Errorf("%s: %v", tried.what, err)
		}
	}
	if err := checkWAL(io.MultiReader(bytes.NewReader(closed), failing{}), "000007.log", 7, true); !errors.Is(err, errFailing) {
		t.Errorf("what cannot be read: %v", err)
	}
}

var errFailing = errors.New("the disk does not answer")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFailing }

// Writing to a log does not change the written bytes, which belong to the database.
func TestWriteToLogKeepsCallersBytes(t *testing.T) {
	files, path := vfs.Default, filepath.Join(t.TempDir(), "000007.log")
	f, err := databaseFiles{files}.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, walHead+5)
	chunk[4], chunk[6], chunk[walNumberAt] = 5, walFirst, 7
	sum := walSum(chunk[6:])
	chunk[0], chunk[1], chunk[2], chunk[3] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	given := slices.Clone(chunk)
	for range 2 {
		if _, err := f.Write(given); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(given, chunk) {
		t.Error("what was written was changed")
	}
	read, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	text, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	c := &walCheck{number: []byte{7, 0, 0, 0}, next: []byte{8, 0, 0, 0}, whole: true}
	c.block(text)
	if want := int64(len(chunk)); c.synced != want || c.intact != 2*want {
		t.Errorf("the log marked that %d bytes were synced, and %d can be read; want %d and %d", c.synced, c.intact, want, 2*want)
	}
}

// BenchmarkMarkSynced measures the cost of setting the synced length in a written chunk.
func BenchmarkMarkSynced(b *testing.B) {
	for _, size := range []int{300, 1000, walBlock - walHead} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			chunk := make([]byte, walHead+size)
			chunk[4], chunk[5], chunk[6] = byte(size), byte(size>>8), walFirst
			sum := walSum(chunk[6:])
			chunk[0], chunk[1], chunk[2], chunk[3] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
			scratch := make([]byte, 0, len(chunk))
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				scratch = append(scratch[:0], chunk...)
				markSynced(scratch, 0, 1)
			}
		})
	}
}
