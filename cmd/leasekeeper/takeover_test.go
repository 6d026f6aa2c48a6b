//go:build linux || darwin

package main

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// lateness is how long after its deadline a server may still keep a lease. It is generous, because benchmarks measure
// how late a server is.
const lateness = 5 * time.Second

// try runs `run -n` in a new process and reports whether it got the name.
func try(t *testing.T, store string) bool {
	t.Helper()
	out, err := exec.Command("leasekeeper", "run", "--store", store, "--ttl", holderTTL.String(), "-n", "-E", "9", "lock", "--", "true").CombinedOutput()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return true
	case errors.As(err, &ended) && ended.ExitCode() == 9:
		return false
	}
	t.Fatalf("%v\n%s", err, out)
	return false
}

// until tries repeatedly with new processes. None may get the name before never, and the first one that begins after must
// gets it.
func until(t *testing.T, store string, never, must time.Time) {
	t.Helper()
	for tries := 1; ; tries++ {
		began := time.Now()
		got := try(t, store)
		switch {
		case got && time.Now().Before(never):
			t.Fatalf("attempt %d got the name %v too early", tries, time.Until(never))
		case got:
			t.Logf("attempt %d got it, %v after it could", tries, time.Since(never).Round(time.Millisecond))
			return
		case began.After(must):
			t.Fatalf("attempt %d, begun %v after the end, was refused", tries, began.Sub(must))
		}
		time.Sleep(50 * time.Millisecond) // like the pause between two runs of a job
	}
}

// A killed holder keeps its name for its TTL and no longer. This holds also if no process waits for the name, and new
// processes try only once. None of them lives as long as the TTL.
func TestFreshProcessesTakeOverFromAKilledHolder(t *testing.T) {
	onDatabases(t, func(t *testing.T, fresh func() string) { checkTakeover(t, fresh(), 0) })
}

// The same holds on a Leasekeeper server, by its own service and by etcd's API.
func TestFreshProcessesTakeOverOnAServer(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"leasekeeper", "etcd"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			checkTakeover(t, scheme+"://"+launchAt(t, t.TempDir()).endpoint+"/", lateness)
		})
	}
}

// checkTakeover kills a holder and takes its name over. late is how long after its deadline the store may keep the lease.
func checkTakeover(t *testing.T, store string, late time.Duration) {
	t.Helper()
	dead := occupy(t, store, "touch ready; sleep 60")
	dead.pid()
	if try(t, store) {
		t.Fatal("a process got the name while it was held")
	}
	killed := dead.kill()
	// The last renewal was at most a little more than a third of the TTL before the kill.
	until(t, store, killed.Add(holderTTL/2), killed.Add(holderTTL+late))
}

// A process on another machine cannot compare its clocks with those of the dead holder. The first process begins to
// count, and later processes continue its count.
func TestFreshProcessesOnAnotherMachineTakeOver(t *testing.T) {
	onDatabases(t, func(t *testing.T, fresh func() string) {
		store := fresh()
		dead := occupy(t, store, "touch ready; sleep 60")
		dead.pid()
		dead.kill()
		moveToOtherMachine(t, store)
		before := time.Now()
		if try(t, store) {
			t.Fatal("a process got the name too early")
		}
		first := time.Now()
		whole := clock.DefaultDrift.WaitRemote(holderTTL)
		until(t, store, before.Add(holderTTL), first.Add(whole))
	})
}

// kill kills run with SIGKILL, as if its machine had failed, and returns the time.
func (r *holder) kill() time.Time {
	r.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	killed := time.Now()
	r.cmd.Wait()
	return killed
}
