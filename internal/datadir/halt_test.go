package datadir

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// When the disk fails under a copy, Examine returns, although the copy's database never ends. Its goroutines remain until
// the test's process ends. The database of the member goes on.
func TestExamineReturnsWhenDiskFails(t *testing.T) {
	var broken atomic.Bool
	files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.Contains(op.Path, SnapshotPrefix) && op.Kind == errorfs.OpCreate {
			return errors.New("no space left on device")
		}
		return nil
	}))
	db, lock, err := Open(files, "dir", Options{Halt: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	write := func(db *pebble.DB) error { return db.Set([]byte("k"), []byte("v"), pebble.NoSync) }
	if err := Examine(files, "dir", db, 1, write); err != nil {
		t.Errorf("on a sound disk: %v", err)
	}
	wrong := errors.New("wrong")
	if err := Examine(files, "dir", db, 2, func(*pebble.DB) error { return wrong }); !errors.Is(err, wrong) || errors.Is(err, ErrHalted) {
		t.Errorf("an error of look: %v", err)
	}
	err = Examine(files, "dir", db, 3, func(db *pebble.DB) error {
		broken.Store(true)
		return write(db)
	})
	if !errors.Is(err, ErrHalted) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("on a broken disk: %v", err)
	}
	broken.Store(false)
	if err := errors.Join(db.Set([]byte("k"), []byte("v"), pebble.Sync), db.Close(), lock.Close()); err != nil {
		t.Error(err)
	}
}

// Damage is returned when the work has ended, and the database is closed: it is no halt.
func TestDamageIsNoHalt(t *testing.T) {
	ended := false
	err := untilHalt(func(halt func(error)) error {
		halt(&record.DamagedError{What: "file 7", Err: errors.New("checksum")})
		halt(&record.DamagedError{What: "file 8", Err: errors.New("checksum")})
		ended = true
		return nil
	})
	var damaged *record.DamagedError
	if !errors.As(err, &damaged) || damaged.What != "file 7" || errors.Is(err, ErrHalted) || !ended {
		t.Errorf("%v, ended: %v", err, ended)
	}
}
