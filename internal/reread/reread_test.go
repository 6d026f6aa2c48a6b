package reread

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(a, "1")
	now := time.Now()
	f := Watch(now, a, b)
	expect := func(what string, after time.Duration, want bool) {
		t.Helper()
		now = now.Add(after)
		if got := f.Changed(now); got != want {
			t.Errorf("%s: changed %v, want %v", what, got, want)
		}
	}
	expect("nothing has happened", Interval, false)
	put(a, "12")
	expect("too early", Interval-1, false)
	expect("a file is longer", 1, true)
	expect("that was noticed", Interval, false)
	put(b, "1")
	expect("a file is new", Interval, true)
	if err := os.Rename(b, a); err != nil {
		t.Fatal(err)
	}
	expect("one file has taken the place of the other", Interval, true)
	then := time.Unix(1, 0)
	if err := os.Chtimes(a, then, then); err != nil {
		t.Fatal(err)
	}
	expect("a file has another time", Interval, true)
	put(a, "2")
	expect("the clock was set back", -2*Interval, true)
	f.LookEvery(0)
	put(a, "123")
	expect("each question looks", 0, true)
}

func TestUnusableFilesAreReadAgainAndToldOnce(t *testing.T) {
	now := time.Now()
	f := Watch(now, filepath.Join(t.TempDir(), "absent"))
	first, second := errors.New("first"), errors.New("second")
	if !f.Used(first) || f.Used(first) || !f.Used(second) || f.Used(nil) || !f.Used(second) {
		t.Error("an error is news each time, or never")
	}
	if !f.Changed(now.Add(Interval)) {
		t.Error("files that could not be used are not read again")
	}
	f.Used(nil)
	if f.Changed(now.Add(2 * Interval)) {
		t.Error("files that are in use and have not changed are read again")
	}
}
