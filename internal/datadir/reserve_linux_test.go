package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// TestReserveFileFollowsFreeSpace checks the file while a disk fills up and becomes free again.
func TestReserveFileFollowsFreeSpace(t *testing.T) {
	dir := t.TempDir()
	const least = 8 << 20
	free := uint64(0)
	r := NewReserve(vfs.Default, dir, least/2, func(string) (uint64, error) { return free, nil })
	path := filepath.Join(dir, reserveFile)
	for _, step := range []struct {
		free, want uint64 // free bytes without the file, and the result of Look
		kept       bool
	}{
		{2 * least, 2 * least, false}, // too little to take a part of it
		{2*least + 1, 2*least + 1 + least/2, true},
		{least, least + least/2, true},
		{least / 4, least/4 + least/2, true}, // a shortage, but enough for necessary work
		{least/4 - 1, least/4 - 1, false},    // the file is removed
		{least, least, false},
		{3 * least, 3*least + least/2, true},
	} {
		free = step.free
		got, err := r.Look()
		if err != nil || got != step.want {
			t.Errorf("with %d free: %d, %v, want %d", step.free, got, err, step.want)
		}
		info, err := os.Stat(path)
		if kept := err == nil; kept != step.kept {
			t.Errorf("with %d free: the file is there: %v", step.free, kept)
		}
		if step.kept && err == nil {
			if blocks := info.Sys().(*syscall.Stat_t).Blocks * 512; blocks < least/2 {
				t.Errorf("the file has blocks for %d bytes", blocks)
			}
		}
	}
	if err := removeReserve(vfs.Default, dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of an earlier process stays: %v", err)
	}
}

// TestReserveWithoutSystemSupportIsEmpty uses a file system that cannot reserve blocks.
func TestReserveWithoutSystemSupportIsEmpty(t *testing.T) {
	dir := t.TempDir()
	r := NewReserve(vfs.Default, dir, 1<<19, func(string) (uint64, error) { return 1 << 30, nil })
	r.reserve = func(uintptr, int64, int64) error { return unix.EOPNOTSUPP }
	for range 2 {
		if free, err := r.Look(); err != nil || free != 1<<30 {
			t.Errorf("%d bytes are free: %v", free, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, reserveFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty file stays: %v", err)
	}
}
