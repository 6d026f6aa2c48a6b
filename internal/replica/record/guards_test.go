package record

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// Each test here names guards of this package, and fails if exactly one of them is removed.

func isDamage(err error) bool {
	_, ok := errors.AsType[*DamagedError](err)
	return ok
}

// A buffer does not find what was deleted in it, nor believe bytes that are no record.
func TestBufferFindsOnlyWhatIsThere(t *testing.T) {
	b, key, m := NewBuffer(), NameKey("n"), new(logpb.Name)
	b.Put(key, &logpb.Name{Name: []byte("n"), Last: 3}, true)
	if found, err := b.Load(key, m); err != nil || !found || m.Last != 3 {
		t.Fatalf("%v, %v", found, err)
	}
	b.records[string(key)].value = []byte{0xff}
	if found, err := b.Load(key, m); !isDamage(err) || found {
		t.Errorf("bytes that are no record are read: %v, %v", found, err)
	}
	b.Delete(key)
	if found, err := b.Load(key, m); err != nil || found {
		t.Errorf("a deleted record is found: %v, %v", found, err)
	}
}

// A buffer is bounded in records and in what it has logged, and so is the memory that it keeps.
func TestBufferIsBounded(t *testing.T) {
	b := NewBuffer()
	if b.Full() {
		t.Error("an empty buffer is full")
	}
	if b.bytes = maxLoggedBytes + 1; !b.Full() {
		t.Error("a buffer that has logged too much is not full")
	}
	b.free(&buffered{value: make([]byte, 0, 1<<10+1)})
	if len(b.spare) != 0 {
		t.Error("the memory of a large record is kept")
	}
	for range MaxBuffered + 2 {
		b.free(new(buffered))
	}
	if len(b.spare) != MaxBuffered {
		t.Errorf("the memory of %d records is kept", len(b.spare))
	}
}

// Of logged records one that cannot be read is damage, whatever comes before and behind it. Nothing of them is removed.
func TestOneDamagedBufferIsEnough(t *testing.T) {
	good := NewBuffer()
	good.Put(NameKey("n"), &logpb.Name{Name: []byte("n")}, true)
	text := appendBuffered(nil, good.records[string(NameKey("n"))])
	for _, records := range [][][]byte{{text, {9}}, {{9}, text}} {
		db := openDatabase(t)
		batch := db.NewBatch()
		for i, record := range records {
			if err := batch.Set(numbered(FamilyBuffer, uint64(i+1)), record, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := batch.Commit(pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if err := FlushLogged(db); !isDamage(err) {
			t.Errorf("with %x: %v", records, err)
		}
		if _, closer, err := db.Get(numbered(FamilyBuffer, 2)); err != nil {
			t.Errorf("with %x logged records are removed: %v", records, err)
		} else if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A record that cannot be read is damage for everybody who reads it.
func TestUnreadableRecordsAreDamage(t *testing.T) {
	db := openDatabase(t)
	for _, key := range [][]byte{NameKey("n"), LeaseKey(7)} {
		if err := db.Set(key, []byte{0xff}, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := Holder(db, "n"); !isDamage(err) {
		t.Errorf("the holder: %v", err)
	}
	if err := Held(db, "", "", func(string) bool { return true }); !isDamage(err) {
		t.Errorf("the held names: %v", err)
	}
	if _, err := History(db, "n"); !isDamage(err) {
		t.Errorf("the history: %v", err)
	}
	if err := Leases(db, func(*logpb.Lease) bool { return true }); !isDamage(err) {
		t.Errorf("the leases: %v", err)
	}
	if _, err := Load(db, NameKey("n"), new(logpb.Name)); !isDamage(err) {
		t.Errorf("the record of a name: %v", err)
	}
	batch := db.NewBatch()
	Put(batch, NameKey("n"), &logpb.Name{Name: []byte("n"), Ended: 1})
	if err := errors.Join(batch.Set(PastKey("n", 0), []byte{0xff}, nil), batch.Commit(pebble.NoSync)); err != nil {
		t.Fatal(err)
	}
	if _, err := History(db, "n"); !isDamage(err) || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("the history with a tenure that cannot be read: %v", err)
	}
}

// Only names with a holder are held, and a reader may stop when it has enough.
func TestHeldNamesHaveHolders(t *testing.T) {
	db := openDatabase(t)
	batch := db.NewBatch()
	for name, held := range map[string]bool{"a": true, "b": false, "c": true, "d": true} {
		m := &logpb.Name{Name: []byte(name)}
		if held {
			m.Current = &logpb.Tenure{Token: 1}
		}
		Put(batch, NameKey(name), m)
	}
	if err := batch.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	for enough, want := range map[int][]string{9: {"a", "c", "d"}, 2: {"a", "c"}} {
		var all []string
		err := Held(db, "", "", func(name string) bool {
			all = append(all, name)
			return len(all) < enough
		})
		if err != nil || !slices.Equal(all, want) {
			t.Errorf("up to %d: %v, %v", enough, all, err)
		}
		seen := 0
		err = Names(db, func(*logpb.Name) bool { seen++; return seen < enough })
		if err != nil || seen != min(enough, 4) {
			t.Errorf("up to %d: %d names, %v", enough, seen, err)
		}
	}
}

// A sentence about damage ends with its cause, if there is one.
func TestDamageNamesItsCause(t *testing.T) {
	if got := (&DamagedError{What: "this"}).Error(); !strings.HasSuffix(got, ": this") {
		t.Errorf("without a cause: %s", got)
	}
	if got := (&DamagedError{What: "this", Err: errors.New("that")}).Error(); !strings.HasSuffix(got, ": this: that") {
		t.Errorf("with a cause: %s", got)
	}
}
