package sqlite

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/backend"
)

func TestFileSystemKindsAreKnown(t *testing.T) {
	for kind, want := range map[int64]bool{
		unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true,
		unix.FUSE_SUPER_MAGIC: false, // also of virtiofs
		unix.V9FS_MAGIC:       false, unix.OVERLAYFS_SUPER_MAGIC: false, unix.ECRYPTFS_SUPER_MAGIC: false, unix.PROC_SUPER_MAGIC: false, 0: false, 0x12345678: false,
	} {
		if p, err := placeOn(kind); p.plain != want || p.own || err != nil {
			t.Errorf("%#x: %+v, %v", kind, p, err)
		}
	}
	for kind, name := range remote {
		if p, err := placeOn(kind); p != (location{}) || err == nil || plain[kind] {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestFilesOfThisMachineAreLocated(t *testing.T) {
	for path, want := range map[string]location{"/": {own: true}, "/proc/version": {}, "/proc/none": {}, "/none/none": {}} {
		p, err := locate(path)
		if p.plain = p.plain && path != "/"; p != want || err != nil { // the file system from which this machine runs is unknown
			t.Errorf("%s: %+v, %v", path, p, err)
		}
	}
	dir := t.TempDir() // a file is where its directory is, even before it exists
	there, err := locate(dir)
	if soon, failed := locate(filepath.Join(dir, "none")); soon != there || errors.Join(err, failed) != nil {
		t.Errorf("%+v, %+v, %v, %v", there, soon, err, failed)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "x"), Config{look: func(string) (location, error) { return location{}, backend.ErrInvalid }}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a file where it must not be: %v", err)
	}
}
