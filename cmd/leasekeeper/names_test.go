package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// inMemory runs a command line on a store in memory, which belongs to the test and offers every feature.
func inMemory(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	args = append(args, "--store", memoryOf(t))
	if got := run(args, &stdout, &stderr); got != code {
		t.Errorf("leasekeeper %s: code %d, want %d; it wrote %q", strings.Join(args, " "), got, code, stderr.String())
	}
	return stdout.String() + stderr.String()
}

func memoryOf(t *testing.T) string { return "memory:" + t.Name() }

func says(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%q does not say %q", got, part)
		}
	}
}

func TestPinPreventsRevokeAndHistoryListsTenures(t *testing.T) {
	token := strings.TrimSpace(inMemory(t, 0, "acquire", "jobs/nightly", "--ttl", "60s", "--holder", "first"))
	says(t, inMemory(t, 0, "pin", "jobs/nightly", "--reason", "we look into it"), "jobs/nightly is pinned\n")
	says(t, inMemory(t, 0, "show", "jobs/nightly"), "pinned", "we look into it", "holder     first")
	says(t, inMemory(t, 0, "show", "jobs/nightly", "-o", "json"), `"pinned": "we look into it"`)
	says(t, inMemory(t, 1, "revoke", "jobs/nightly", "--reason", "x", "--now"), "pinned")
	says(t, inMemory(t, 0, "unpin", "jobs/nightly", "-o", "json"), `"result": "unpinned"`)
	says(t, inMemory(t, 1, "transfer", "jobs/nightly"), "could not transfer jobs/nightly")
	says(t, inMemory(t, 1, "revoke", "jobs/nightly", "999", "--reason", "x", "--now"), "could not revoke")
	says(t, inMemory(t, 0, "revoke", "jobs/nightly", token, "--reason", "a test", "--now"), "is free; its former holder may not know yet")
	second := strings.TrimSpace(inMemory(t, 0, "acquire", "jobs/nightly", "--ttl", "60s", "--holder", "second"))
	says(t, inMemory(t, 0, "release", "jobs/nightly", second), "jobs/nightly is free")
	past := inMemory(t, 0, "history", "jobs/nightly")
	says(t, past, "TOKEN  HOLDER", "revoked: a test", "released", "first", "second")
	if strings.Index(past, "second") > strings.Index(past, "first") {
		t.Errorf("the newest tenure is not first: %s", past)
	}
	says(t, inMemory(t, 0, "history", "jobs/nightly", "--limit", "1", "-o", "json"), `"why": "released"`)
	says(t, inMemory(t, 0, "history", "nobody", "-o", "json"), "[]\n")
	if a, _ := strconv.Atoi(token); strconv.Itoa(a) != token || token >= second {
		t.Errorf("the tokens are %s and %s", token, second)
	}
}

// acquire releases a lease if it cannot print the token: no other program could.
func TestAcquireReleasesALeaseThatItCannotRenew(t *testing.T) {
	heal := memory.Named(t.Name()).Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Renew})
	says(t, inMemory(t, 3, "acquire", "lock", "--ttl", "60s"), "could not keep lock after it was acquired")
	heal()
	inMemory(t, 0, "acquire", "lock", "--ttl", "60s", "--nonblock")
}

func TestTransferHandsTheNameToTheNextWaiter(t *testing.T) {
	inMemory(t, 0, "acquire", "lock", "--ttl", "60s", "--holder", "first")
	ctx := context.Background()
	k, err := leasekeeper.Open(ctx, memoryOf(t), leasekeeper.WithHolder("second"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	got := make(chan error, 1)
	go func() {
		_, err := k.Acquire(ctx, "lock")
		got <- err
	}()
	eventually(t, "one waiter", func() bool { return strings.Contains(inMemory(t, 0, "show", "lock"), "waiting    1") })
	says(t, inMemory(t, 1, "transfer", "lock", "12345"), "token 12345 was never issued")
	says(t, inMemory(t, 0, "transfer", "lock"), "lock was handed to the next waiter\n")
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	says(t, inMemory(t, 0, "ls"), "second")
}

func TestRevokeWithoutNowOnlyStopsRenewals(t *testing.T) {
	token := strings.TrimSpace(inMemory(t, 0, "acquire", "lock", "--ttl", "60s"))
	says(t, inMemory(t, 0, "revoke", "lock", "--reason", "a test"), "lock can no longer be renewed, and is free when its lease has ended")
	says(t, inMemory(t, 0, "token", "check", "lock", token), "holds lock")
	says(t, inMemory(t, 1, "renew", "lock", token), "could not renew the lease")
}

func TestWatchPrintsChangesOnAServer(t *testing.T) {
	endpoint := launchAt(t, t.TempDir()).endpoint
	checkWatch(t, "etcd://"+endpoint+"/")
}

// checkWatch changes names and checks that watch prints the changes.
func checkWatch(t *testing.T, store string) {
	t.Helper()
	var out lockedText
	watcher := exec.Command("leasekeeper", "watch", "jobs/", "--store", store)
	watcher.Stdout, watcher.Env = &out, os.Environ()
	if err := watcher.Start(); err != nil {
		t.Fatal(err)
	}
	defer watcher.Process.Kill()
	prints := func(parts ...string) {
		t.Helper()
		eventually(t, strings.Join(parts, " "), func() bool {
			for line := range strings.Lines(out.String()) {
				all := true
				for _, part := range parts {
					all = all && strings.Contains(line, part)
				}
				if all {
					return true
				}
			}
			return false
		})
	}
	// watch may begin before or after a change: it prints the present state first.
	script := func(args ...string) string {
		t.Helper()
		text, err := exec.Command("leasekeeper", append(args, "--store", store)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	token := script("acquire", "jobs/nightly", "--ttl", "60s", "--holder", "me")
	script("acquire", "other", "--ttl", "60s", "--holder", "me")
	prints("jobs/nightly", "me", "token "+token)
	script("release", "jobs/nightly", token)
	prints("vacated", "jobs/nightly")
	if strings.Contains(out.String(), "other") {
		t.Errorf("watch prints names without the prefix: %q", out.String())
	}
	if runtime.GOOS == "windows" {
		t.Skip("no signals here")
	}
	if err := watcher.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := watcher.Wait(); err != nil {
		t.Errorf("watch ended with %v", err)
	}
}

// lockedText is a buffer for several goroutines.
type lockedText struct {
	mu   sync.Mutex
	text []byte
}

func (l *lockedText) Write(piece []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, piece...)
	return len(piece), nil
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func eventually(t *testing.T, what string, seen func() bool) {
	t.Helper()
	for limit := time.Now().Add(startLimit); !seen(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not seen: %s", what)
		}
	}
}
