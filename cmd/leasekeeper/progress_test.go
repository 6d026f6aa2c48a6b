//go:build linux || darwin

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// shownOnTerminal runs the command on a terminal of its own, and returns what it printed.
func shownOnTerminal(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("leasekeeper", args...)
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var shown strings.Builder
	io.Copy(&shown, terminal) // ends with EIO when the process has ended
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %q", err, shown.String())
	}
	return shown.String()
}

// checkProgress checks that a command has shown its progress on a terminal, and has then removed it.
func checkProgress(t *testing.T, shown, progress, after string) {
	t.Helper()
	if !regexp.MustCompile(`\r` + progress + `[^\n]*\r +\r` + after).MatchString(shown) {
		t.Errorf("the command printed %q", shown)
	}
}

// inPipe runs the command with pipes, and returns what it printed.
func inPipe(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("leasekeeper", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestMoveShowsItsProgressOnATerminal(t *testing.T) {
	dir := t.TempDir()
	a, b := settings.FileStore(filepath.Join(dir, "a.db")), settings.FileStore(filepath.Join(dir, "b.db"))
	const names = 30
	for i := range names {
		name := fmt.Sprintf("jobs/%d", i)
		acquire(t, a, name, "me")
		if code := run([]string{"release", name, "1", "--store", a}, io.Discard, os.Stderr); code != command.ExitDone {
			t.Fatalf("release of %s: exit code %d", name, code)
		}
	}
	shown := shownOnTerminal(t, "move", "--from", a, "--to", b)
	checkProgress(t, shown, "[0-9]+ names? checked, [0-9]+ moved", "30 names were moved: tokens continue above 3\r\n$")
	if out := inPipe(t, "move", "--from", b, "--to", a); out != "30 names were moved: tokens continue above 4\n" {
		t.Errorf("in a pipe it printed %q", out)
	}
}

func TestCollectShowsItsProgressOnATerminal(t *testing.T) {
	store := settings.FileStore(filepath.Join(t.TempDir(), "leases.db"))
	for _, name := range []string{"jobs/a", "jobs/b"} {
		acquire(t, store, name, "me")
		succeeds(t, "release", name, "1", "--store", store)
	}
	collect := []string{"collect", "--older-than", "0s", "--store", store}
	checkProgress(t, shownOnTerminal(t, collect...), "2 records checked, 2 removed", "2 records were removed\r\n$")
	if out := inPipe(t, collect...); out != "0 records were removed\n" {
		t.Errorf("in a pipe it printed %q", out)
	}
}

func TestSnapshotAndRestoreShowTheirProgressOnATerminal(t *testing.T) {
	dir := t.TempDir()
	endpoint := launchAt(t, t.TempDir()).endpoint
	file := filepath.Join(dir, "leases.snapshot")
	const size = "[0-9.]+ [KM]?i?B"
	for _, c := range []struct{ onTerminal, piped, progress, result string }{
		{"snapshot save " + file + " --endpoint " + endpoint, "snapshot save " + file + ".piped --endpoint " + endpoint, size + " of " + size, "saved "},
		{"snapshot inspect " + file, "snapshot inspect " + file, size + " of " + size + " read", ""},
		{"restore " + file + " --data-dir " + dir + "/one", "restore " + file + " --data-dir " + dir + "/two", size + " of " + size + " read", "restored "},
	} {
		checkProgress(t, shownOnTerminal(t, strings.Fields(c.onTerminal)...), c.progress, c.result)
		if out := inPipe(t, strings.Fields(c.piped)...); !strings.HasPrefix(out, c.result) || strings.Contains(out, "\r") {
			t.Errorf("in a pipe `leasekeeper %s` printed %q", c.piped, out)
		}
	}
}

func TestImportShowsItsProgressOnATerminal(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "etcd.snapshot")
	saveAsEtcd(t, launchAt(t, t.TempDir()).endpoint, file)
	shown := shownOnTerminal(t, "import", "--from-etcd", file, "--data-dir", filepath.Join(dir, "one"))
	checkProgress(t, shown, "[0-9.]+ KiB of [0-9.]+ KiB verified", "imported ")
	if out := inPipe(t, "import", "--from-etcd", file, "--data-dir", filepath.Join(dir, "two")); !strings.HasPrefix(out, "imported ") {
		t.Errorf("in a pipe it printed %q", out)
	}
}

// saveAsEtcd saves a snapshot of the server in etcd's format, as etcdctl does.
func saveAsEtcd(t *testing.T, endpoint, path string) {
	t.Helper()
	stream, err := pb.NewMaintenanceClient(connect(t, endpoint).conn).Snapshot(t.Context(), &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, m.Blob...)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRecoverShowsItsProgressOnATerminal(t *testing.T) {
	dir := t.TempDir()
	launchAt(t, dir).kill()
	into := func(to string) []string {
		return []string{"recover", filepath.Join(dir, "data"), "--data-dir", filepath.Join(dir, to), "--accept-loss", "--others-stopped"}
	}
	shown := shownOnTerminal(t, into("one")...)
	checkProgress(t, shown, "[0-9.]+ [KM]?i?B of [0-9.]+ [KM]iB copied", regexp.QuoteMeta(filepath.Join(dir, "data"))+" has cluster")
	if out := inPipe(t, into("two")...); !strings.HasPrefix(out, filepath.Join(dir, "data")+" has cluster") {
		t.Errorf("in a pipe it printed %q", out)
	}
}
