//go:build linux || darwin

package main

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// lateness is how long after its end a server may still keep a lease. It is generous: a server acts on an end when it
// has noticed it, and how late that is belongs to the benchmarks.
const lateness = 5 * time.Second

// try runs `run -n` in a fresh process and says whether it got the name.
func try(t *testing.T, store string) bool {
	t.Helper()
	out, err := exec.Command("leasekeeper", "run", "--store", store, "--ttl", tenantTTL.String(), "-n", "-E", "9", "lock", "--", "true").CombinedOutput()
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

// until tries again and again with fresh processes. None may get the name before a time, and the first that begins
// after another must.
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
		time.Sleep(50 * time.Millisecond) // as long as there is between two runs of a job, in short
	}
}

// A holder that is killed has its name for its TTL and no longer, also if nobody waits and all there are is
// processes that ask once. None of them lives as long as the TTL, and none is told anything by the dead one.
func TestFreshProcessesTakeOverFromOneThatWasKilled(t *testing.T) {
	onDatabases(t, func(t *testing.T, fresh func() string) { takenFromTheDead(t, fresh(), 0) })
}

// The same on our server, by its own service and by etcd's API.
func TestFreshProcessesTakeOverOnAServer(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"leasekeeper", "etcd"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			takenFromTheDead(t, scheme+"://"+launchAt(t, t.TempDir()).endpoint+"/", lateness)
		})
	}
}

// takenFromTheDead kills a holder. late is how long after its end a lease may still be there.
func takenFromTheDead(t *testing.T, store string, late time.Duration) {
	t.Helper()
	dead := occupy(t, store, "touch ready; sleep 60")
	dead.pid()
	if try(t, store) {
		t.Fatal("it was taken from who holds it")
	}
	killed := dead.kill()
	// It was renewed at most a third of its TTL, and a little, before.
	until(t, store, killed.Add(tenantTTL/2), killed.Add(tenantTTL+late))
}

// On another machine nobody knows the clocks of the dead. Who asks first begins to count, and those who come later
// go on with its count.
func TestFreshProcessesOnAnotherMachineTakeOver(t *testing.T) {
	onDatabases(t, func(t *testing.T, fresh func() string) {
		store := fresh()
		dead := occupy(t, store, "touch ready; sleep 60")
		dead.pid()
		dead.kill()
		elsewhere(t, store)
		before := time.Now()
		if try(t, store) {
			t.Fatal("it was taken before its time")
		}
		first := time.Now()
		whole := clock.DefaultDrift.WaitRemote(tenantTTL)
		until(t, store, before.Add(tenantTTL), first.Add(whole))
	})
}

// kill ends it like a machine that fails, and says when.
func (r *tenant) kill() time.Time {
	r.t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	killed := time.Now()
	r.cmd.Wait()
	return killed
}
