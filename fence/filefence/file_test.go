package filefence

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/leasekeeper/leasekeeper/fence"
)

func holds(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q, %v; want %q", path, got, err, want)
	}
}

func wantStale(t *testing.T, err error, name string, token, highest fence.Token) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || *stale != (fence.StaleError{Name: name, Token: token, Highest: highest}) {
		t.Errorf("got %v, want %d refused for %d", err, token, highest)
	}
}

func TestStaleWritersDoNotReplaceTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	write := func(token fence.Token, data string) error { return WriteFile(path, token, []byte(data), 0o644) }
	for _, c := range []struct {
		token fence.Token
		data  string
	}{{9, "nine"}, {9, "nine again"}, {10, "ten"}, {1<<64 - 1, "the last"}, {1<<64 - 1, ""}} {
		if err := write(c.token, c.data); err != nil {
			t.Fatal(err)
		}
		holds(t, path, c.data)
		if highest, err := Highest(path); highest != c.token || err != nil {
			t.Errorf("the highest is %d, %v", highest, err)
		}
		wantStale(t, write(c.token-1, "stale"), path, c.token-1, c.token)
		wantStale(t, Advance(path, c.token-1), path, c.token-1, c.token)
		holds(t, path, c.data)
	}
	left, err := os.ReadDir(filepath.Join(filepath.Dir(path), ".report.fence"))
	if err != nil || len(left) != 1 {
		t.Errorf("the mark directory holds %v, %v: want the one mark", left, err)
	}
}

func TestAdvanceRefusesOlderTokensAndKeepsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	if highest, err := Highest(path); highest != 0 || err != nil {
		t.Errorf("no token has reached the file, but the highest is %d, %v", highest, err)
	}
	if err := Advance(path, 5); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Advance created the file: %v", err)
	}
	wantStale(t, WriteFile(path, 4, nil, 0o644), path, 4, 5)
	if err := WriteFile(path, 5, []byte("five"), 0o644); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "five")
}

func TestWriteFileRefusesInvalidArguments(t *testing.T) {
	dir := t.TempDir()
	if err := WriteFile(filepath.Join(dir, "a"), 0, nil, 0o644); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("token 0: %v", err)
	}
	for _, path := range []string{"", ".", "..", "/", dir + "/.."} {
		if err := WriteFile(path, 1, nil, 0o644); err == nil {
			t.Errorf("%q was written", path)
		}
	}
	if err := WriteFile(filepath.Join(dir, "none", "a"), 1, nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	if err := WriteFile(dir, 1, nil, 0o644); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a directory was replaced: %v", err)
	}
}

func TestWriteFileSetsThePermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has only a read-only bit")
	}
	path := filepath.Join(t.TempDir(), "secret")
	for token, perm := range []fs.FileMode{0o600, 0o400, 0o640} {
		if err := WriteFile(path, fence.Token(token+1), []byte("x"), perm); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != perm {
			t.Errorf("got %v, %v; want %v", info.Mode(), err, perm)
		}
	}
}

func TestUnknownFilesInTheMarkDirectoryAreKept(t *testing.T) {
	dir := t.TempDir()
	path, markDir := filepath.Join(dir, "report"), filepath.Join(dir, ".report.fence")
	if err := os.Mkdir(markDir, 0o777); err != nil {
		t.Fatal(err)
	}
	foreign := []string{"README", "99", "00000000000000000000", "99999999999999999999", ".nfs0001", "00000000000000000009x"}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(markDir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteFile(path, 5, []byte("five"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range foreign {
		if _, err := os.Stat(filepath.Join(markDir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestConcurrentGoroutinesReplaceInTokenOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	const holders = 8
	var group sync.WaitGroup
	for token := fence.Token(1); token <= holders; token++ {
		group.Go(func() {
			for range 5 {
				err := WriteFile(path, token, dataOf(token), 0o644)
				if token == holders && err != nil || err != nil && !errors.Is(err, fence.ErrStale) && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%d: %v", token, err)
				}
			}
		})
	}
	group.Wait()
	holds(t, path, string(dataOf(holders)))
}

// Programs write the same file repeatedly, each with its own token. Meanwhile the token in the file must never
// decrease.
func TestConcurrentProcessesReplaceInTokenOrder(t *testing.T) {
	if spec := os.Getenv("FILEFENCE_TEST_WRITER"); spec != "" {
		writeUntilStale(t, spec)
		return
	}
	path := filepath.Join(t.TempDir(), "report")
	const holders, writes = 4, 20
	var group sync.WaitGroup
	for token := 1; token <= holders; token++ {
		group.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestConcurrentProcessesReplaceInTokenOrder$", "-test.count=1")
			cmd.Env = append(os.Environ(), fmt.Sprintf("FILEFENCE_TEST_WRITER=%d %d %s", token, writes, path))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("the writer %d: %v\n%s", token, err, out)
			}
		})
	}
	over := make(chan struct{})
	go func() { group.Wait(); close(over) }()
	last := 0
	for running := true; running; {
		select {
		case <-over:
			running = false // read the file once more
		default:
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && last == 0 {
			continue
		}
		token, rest, _ := bytes.Cut(data, []byte(" "))
		now, numberErr := strconv.Atoi(string(token))
		if err != nil || numberErr != nil || len(rest) != 100_000 {
			t.Fatalf("the file is not whole: %v, %v, %d bytes", err, numberErr, len(data))
		}
		if now < last {
			t.Fatalf("the write of %d took effect after that of %d", now, last)
		}
		last = now
	}
	if last != holders {
		t.Errorf("the last write has token %d", last)
	}
}

func writeUntilStale(t *testing.T, spec string) {
	var token fence.Token
	var writes int
	var path string
	if _, err := fmt.Sscan(spec, &token, &writes, &path); err != nil {
		t.Fatal(err)
	}
	data := []byte(token.String() + " " + strings.Repeat("x", 100_000))
	for range writes {
		switch err := WriteFile(path, token, data, 0o644); {
		case errors.Is(err, fence.ErrStale):
			return
		case errors.Is(err, fs.ErrNotExist): // a newer writer removed its file; the next attempt returns ErrStale
		case err != nil:
			t.Fatal(err)
		}
	}
}
