package datadir

import (
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// No file holds both history and other keys, even if files are merged.
func TestHistoryIsInFilesOfItsOwn(t *testing.T) {
	db, err := pebble.Open("db", DatabaseOptions(vfs.NewMem(), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const flushes = 20 // more than are merged at a time
	for n := range uint64(flushes) {
		for _, family := range []byte{'d', keyspace.FamilyHistory, 'l', keyspace.FamilyVersions} {
			if err := db.Set(binary.BigEndian.AppendUint64([]byte{family}, n), []byte("value"), pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Set([]byte{keyspace.FamilyVersions}, nil, pebble.NoSync); err != nil { // so that the files overlap
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	levels, err := db.SSTables()
	if err != nil {
		t.Fatal(err)
	}
	history := 0
	for _, tables := range levels {
		for _, table := range tables {
			first, last := table.Smallest.UserKey[0], table.Largest.UserKey[0]
			switch {
			case first == keyspace.FamilyHistory && last == keyspace.FamilyHistory:
				history++
			case first <= keyspace.FamilyHistory && last >= keyspace.FamilyHistory:
				t.Errorf("a file reaches from %q to %q", first, last)
			}
		}
	}
	if history == 0 {
		t.Error("the history has no files")
	}
}
