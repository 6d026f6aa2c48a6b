package conformance

import (
	"os/exec"
	"testing"
	"time"
)

// etcdRun is a command under a lease that our library keeps by nothing but etcd's API.
func (s *server) etcdRun(ttl time.Duration, flags ...string) *exec.Cmd {
	arguments := []string{"run", "--store", "etcd://" + s.addresses() + "/ns", "--ttl", ttl.String()}
	cmd := exec.CommandContext(s.t.Context(), binaries.server[leasekeeper], append(arguments, flags...)...)
	cmd.Dir = s.t.TempDir()
	return cmd
}

// A killed holder keeps its name for its TTL and no longer, even if the only other processes ask once and end.
func TestFreshProcessesTakeOverFromOneThatWasKilled(t *testing.T) {
	onTargets(t, chosen(etcd, leasekeeper), func(t *testing.T, s *server) {
		const ttl = 3 * time.Second
		holder := s.etcdRun(ttl, "name", "--", "sh", "-c", "echo ready; exec sleep 60")
		said, err := holder.StdoutPipe()
		wantOK(t, "pipe", err)
		wantOK(t, "start", holder.Start())
		_, err = said.Read(make([]byte, len("ready")))
		wantOK(t, "the holder begins", err)

		attempt := func() bool {
			out, err := s.etcdRun(ttl, "--nonblock", "--conflict-exit-code", "9", "name", "--", "true").CombinedOutput()
			code := s.keeperCode(err)
			if code != 0 && code != 9 {
				t.Fatalf("exit status %d: %s", code, out)
			}
			return code == 0
		}
		wantEqual(t, "taken from who holds it", attempt(), false)
		wantOK(t, "kill", holder.Process.Kill())
		killed := time.Now()
		holder.Wait() // its state says nothing new
		for must := killed.Add(ttl + lateness); ; time.Sleep(50 * time.Millisecond) {
			began := time.Now()
			if attempt() {
				t.Logf("taken %v after the death", time.Since(killed).Round(time.Millisecond))
				return
			}
			if began.After(must) {
				t.Fatalf("refused to one who began %v after the death", began.Sub(killed))
			}
		}
	})
}
