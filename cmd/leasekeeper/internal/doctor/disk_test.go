package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

func TestSyncLatencyIsJudgedByMedianAndTail(t *testing.T) {
	latencies := func(n int, each time.Duration, tail ...time.Duration) []time.Duration {
		return append(slices.Repeat([]time.Duration{each}, n-len(tail)), tail...)
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		took []time.Duration
		want Verdict
	}{
		{latencies(50, 10*ms), OK}, {latencies(50, 10*ms+1), Warn}, {latencies(50, ms, 100*ms), OK}, {latencies(50, ms, 100*ms+1), Warn},
		{latencies(50, ms, 500*ms), Warn}, {latencies(50, ms, 500*ms+1), Fail}, {latencies(200, ms, time.Second), OK}, {latencies(1, ms), OK},
	} {
		expect(t, fmt.Sprint(c.took[0], c.took[len(c.took)-1], len(c.took)), judgeSync(c.took, time.Second), c.want)
	}
}

func TestFreeSpaceIsJudgedByTheLimits(t *testing.T) {
	limits := replica.SpaceLimits{MinFree: 100}
	for _, c := range []struct {
		free, total uint64
		want        Verdict
	}{
		{99, 1000, Fail}, {100, 1000, Warn}, {199, 1000, Warn}, {200, 1000, OK}, {200, 4000, OK}, {199, 4000, Warn}, {200, 4020, Warn},
	} {
		expect(t, fmt.Sprint(c), judgeSpace(c.free, c.total, limits), c.want)
	}
}

func TestModeOfADataDirectoryIsJudged(t *testing.T) {
	if !hasModes {
		t.Skip("this system has no permission bits")
	}
	for mode, want := range map[fs.FileMode]Verdict{0o700: OK, 0o750: Warn, 0o755: Warn, 0o770: Fail, 0o702: Fail} {
		expect(t, mode.String(), judgeMode("x", mode), want)
	}
}

func TestFileSystemsAreJudged(t *testing.T) {
	for kind, want := range map[string]Verdict{"ext4": OK, "xfs": OK, "tmpfs": Warn, "nfs4": Warn, "fuse.sshfs": Warn, "overlay": Warn, "somefs": NotChecked} {
		expect(t, kind, judgeFileSystem(kind, "/x"), want)
	}
}

func TestSyncProbeLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	took, err := probeSync(t.Context(), dir)
	if err != nil || len(took) != probeSyncs {
		t.Fatal(len(took), err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if took, err := probeSync(stopped, dir); err != nil || len(took) != 0 {
		t.Error(took, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
	if _, err := probeSync(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that does not exist has no sync latency")
	}
}

func TestDataDirectoryIsFoundOrItsParent(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, place string
		want        Verdict
	}{{dir, dir, OK}, {filepath.Join(dir, "a", "b"), dir, OK}, {file, "", Fail}} {
		check, place := checkDirectory(c.path)
		expect(t, c.path, check, c.want)
		if place != c.place {
			t.Errorf("%s: %s and not %s", c.path, place, c.place)
		}
	}
}

func TestDataFormatIsJudged(t *testing.T) {
	dir := t.TempDir()
	expect(t, "an empty directory", checkFormat(dir), NotChecked)
	for text, want := range map[string]Verdict{
		"leasekeeper data format 2\n": OK, "leasekeeper data format 2, version 3 in use\n": OK, "leasekeeper data format 2, version 999 in use\n": Fail, "another\n": Fail,
	} {
		if err := os.WriteFile(filepath.Join(dir, datadir.VersionFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, strings.TrimSpace(text), checkFormat(dir), want)
	}
}

func TestLimitsOfTheProcessAreJudged(t *testing.T) {
	expect(t, "no limit", judgeFiles(0, 1, 1), NotChecked)
	expect(t, "few", judgeFiles(usefulFiles-1, 1, 1), Warn)
	expect(t, "enough", judgeFiles(usefulFiles, 1, 1), OK)
	expect(t, "unknown memory", judgeMemory(1, 0), OK)
	expect(t, "three quarters", judgeMemory(75, 100), OK)
	expect(t, "more", judgeMemory(76, 100), Warn)
}
