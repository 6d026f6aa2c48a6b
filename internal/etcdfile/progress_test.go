package etcdfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestProgressEndsWithAllBytesChangesAndKeys(t *testing.T) {
	w := newWorld()
	w.put("a", "1", 0)
	w.put("a", "2", 0)
	w.put("b", "1", 0)
	path := filepath.Join(t.TempDir(), "file")
	w.save(path)
	type state struct{ done, of int64 }
	last := make(map[Stage]state)
	show := func(stage Stage, done, of int64) {
		if done < last[stage].done {
			t.Errorf("stage %d went back from %d to %d", stage, last[stage].done, done)
		}
		last[stage] = state{done, of}
	}
	f, err := Open(t.Context(), path, show)
	must(err)
	db := memoryDB()
	found, err := Import(t.Context(), f, db, show)
	must(errors.Join(err, f.Close(), db.Close()))
	info, err := os.Stat(path)
	must(err)
	size := info.Size() - 32 // without the checksum
	if last[Verifying] != (state{size, size}) || last[Reading] != (state{3, 0}) || last[Writing] != (state{int64(found.Keys), 0}) {
		t.Errorf("the last states are %v; the file has %d bytes, 3 changes and %d keys", last, size, found.Keys)
	}
}
