package record

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

func openDatabase(t *testing.T) *pebble.DB {
	t.Helper()
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// After a restart the newest version of each record is at its key, whether it was flushed or only logged.
func TestBufferedRecordsSurviveRestart(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		db, buffer := openDatabase(t), NewBuffer()
		log := func() {
			batch := db.NewBatch()
			if buffer.Log(batch); batch.Commit(pebble.NoSync) != nil {
				t.Fatal("the batch is not committed")
			}
		}
		put := func(name string, last int64, below bool) {
			buffer.Put(NameKey(name), &logpb.Name{Name: []byte(name), Last: last}, below)
		}
		put("changed", 1, false)
		put("deleted", 1, false)
		log()
		put("changed", 2, true)
		put("short", 1, false)
		if !buffer.Delete(NameKey("deleted")) || !buffer.Delete(NameKey("short")) || buffer.Delete(NameKey("unknown")) {
			t.Error("Delete does not say whether the buffer has the record")
		}
		log()
		if buffer.Has(NameKey("short")) {
			t.Error("the buffer keeps what began and ended between two logs")
		}
		if flushed {
			if err := buffer.Flush(db); err != nil || buffer.Len() > 0 {
				t.Fatalf("%d records are left, %v", buffer.Len(), err)
			}
		}
		if err := FlushLogged(db); err != nil {
			t.Fatal(err)
		}
		found := make(map[string]int64)
		if err := Names(db, func(m *logpb.Name) bool { found[string(m.Name)] = m.Last; return true }); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found["changed"] != 2 {
			t.Errorf("flushed %t: the database has %v", flushed, found)
		}
	}
}

// Bytes that no buffer logged are refused and not written anywhere.
func TestDamagedBufferIsRefused(t *testing.T) {
	for what, text := range map[string]string{
		"a kind that there is not":   "\x02\x01n\x00",
		"no key":                     "\x00\x00\x00",
		"a key that ends early":      "\x00\x09n",
		"a value that ends early":    "\x00\x01n\x09abc",
		"no value":                   "\x00\x01n",
		"a record of something else": "\x00\x02rh\x00",
	} {
		t.Run(what, func(t *testing.T) {
			db := openDatabase(t)
			if err := db.Set(numbered(FamilyBuffer, 1), []byte(text), pebble.Sync); err != nil {
				t.Fatal(err)
			}
			if err := FlushLogged(db); !errors.As(err, new(*DamagedError)) {
				t.Errorf("flushed with %v", err)
			}
		})
	}
}
