package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// modulePrefix begins the import paths of this repository's packages.
const modulePrefix = "github.com/leasekeeper/leasekeeper/"

// maxInitBytes is how much memory a package of this repository may allocate while it is initialized. Each start of the
// program pays for it, whatever the command does. A package that needs more prepares it when it is first used.
const maxInitBytes = 24 << 10

// maxFormatBytes is the same for packages of generated message formats with many messages.
var maxFormatBytes = map[string]int{
	modulePrefix + "api/leasekeeperv1":      160 << 10,
	modulePrefix + "internal/replica/logpb": 112 << 10,
}

// initLine is what GODEBUG=inittrace=1 prints about one package.
var initLine = regexp.MustCompile(`(?m)^init (\S+) @.* clock, (\d+) bytes, \d+ allocs$`)

// initialized runs the command with a state directory of its own. It returns how many bytes each package allocated when
// it was initialized: one number for each process in which it was.
func initialized(t *testing.T, args ...string) map[string][]int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "leasekeeper", args...)
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", "XDG_STATE_HOME="+t.TempDir())
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, trace.Bytes())
	}
	packages := make(map[string][]int)
	for _, line := range initLine.FindAllStringSubmatch(trace.String(), -1) {
		size, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		packages[line[1]] = append(packages[line[1]], size)
	}
	return packages
}

func TestPackagesAllocateLittleAtStart(t *testing.T) {
	packages := initialized(t, "version")
	if len(packages[modulePrefix+"backend/sqlite"]) != 1 {
		t.Fatalf("the trace lacks a package that registers itself: %v", packages)
	}
	for path, sizes := range packages {
		if !strings.HasPrefix(path, modulePrefix) || path == modulePrefix+"cmd/leasekeeper" || strings.HasPrefix(path, modulePrefix+"internal/test/") {
			continue // the second is this package of tests
		}
		bound := maxInitBytes
		if its, ok := maxFormatBytes[path]; ok {
			bound = its
		}
		if sizes[0] > bound {
			t.Errorf("%s allocates %d bytes when it is initialized, more than %d: prepare what it needs on first use (sync.OnceValue)", path, sizes[0], bound)
		}
	}
}

// The guard runs before the packages are initialized that only the wrapper needs.
func TestGuardInitializesFewPackages(t *testing.T) {
	packages := initialized(t, "run", "jobs/one", "--", "true")
	both, one := 0, 0
	for _, sizes := range packages {
		switch len(sizes) {
		case 1:
			one++
		case 2:
			both++
		}
	}
	if len(packages["os"]) != 2 {
		t.Fatalf("the trace has not the wrapper and the guard, but %d processes", len(packages["os"]))
	}
	for _, path := range []string{"google.golang.org/grpc", "google.golang.org/protobuf/internal/filetype", "modernc.org/sqlite", modulePrefix + "server"} {
		if n := len(packages[path]); n != 1 {
			t.Errorf("%s was initialized in %d processes, not in the wrapper alone", path, n)
		}
	}
	if both > one/2 {
		t.Errorf("the guard initialized %d packages of %d: what does package deadlineguard import now?", both, both+one)
	}
}

// maxSyncs is how often `run` may wait for the disk when the file of the local store exists. SQLite does it once for a new
// log, once for the log's entry in its directory, once to acquire the name, once to release it, and twice at the end to
// move the log into the file.
const maxSyncs = 6

func TestRunWaitsForTheDiskSixTimes(t *testing.T) {
	strace := required.Program(t, "strace", "strace")
	state := t.TempDir()
	syncs := func(file string) (calls []string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-e", "trace=fsync,fdatasync,sync_file_range,msync,sync", "-o", file,
			"leasekeeper", "run", "--ttl", "10m", "jobs/one", "--", "true") // with a long TTL, a slow machine renews nothing
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "sync") && !strings.Contains(line, "resumed") {
				calls = append(calls, line)
			}
		}
		return calls
	}
	syncs(filepath.Join(t.TempDir(), "first")) // makes the file
	calls := syncs(filepath.Join(t.TempDir(), "second"))
	if len(calls) > maxSyncs {
		t.Errorf("run waited for the disk %d times, more than %d:\n%s", len(calls), maxSyncs, strings.Join(calls, ""))
	}
	log := 0
	for _, call := range calls {
		if strings.Contains(call, "leases.db-wal") {
			log++
		}
	}
	if log < 2 {
		t.Errorf("run wrote the log to the disk %d times: an acquired and a released name must survive a power cut:\n%s", log, strings.Join(calls, ""))
	}
}
