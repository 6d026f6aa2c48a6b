package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// keeperRun is a command under a lease of our own service, kept by our own library.
func (s *server) keeperRun(namespace, name, script string, flags ...string) *exec.Cmd {
	arguments := append([]string{"run", "--store", "leasekeeper://" + s.addresses() + "/" + namespace}, flags...)
	cmd := exec.CommandContext(s.t.Context(), s.binary(), append(arguments, name, "-c", script)...)
	cmd.Dir = s.t.TempDir()
	return cmd
}

// A name in a namespace is the lock of etcd's clients with the namespace before it.
func TestKeepersExcludeEtcdsLocks(t *testing.T) {
	onOurs(t, func(t *testing.T, s *server) {
		st := s.store()
		m := concurrency.NewMutex(s.session(60), "ns/name")
		wantOK(t, "lock", m.Lock(s.context()))
		out, err := s.keeperRun("ns", "name", "echo in", "--nonblock").CombinedOutput()
		if code := s.keeperCode(err); code != 1 {
			t.Errorf("run while a mutex is held exits with %d: %s", code, out)
		}
		out, err = s.keeperRun("", "name", "echo in", "--nonblock").CombinedOutput()
		wantOK(t, "run in no namespace: "+string(out), err)
		waiting := s.keeperRun("ns", "name", "echo in")
		done := begin(func() error { return waiting.Run() })
		st.awaitMembers("ns/name", 2)
		ctl := s.startCtl("lock", "ns/name")
		st.awaitMembers("ns/name", 3)
		wantOK(t, "unlock", m.Unlock(s.context()))
		wantOK(t, "run", <-done)
		ctl.wantMember("ns/name", "")
		out, err = s.keeperRun("ns", "name", "echo in", "--nonblock").CombinedOutput()
		if code := s.keeperCode(err); code != 1 {
			t.Errorf("run while etcdctl holds the lock exits with %d: %s", code, out)
		}
		ctl.signal(os.Interrupt)
		ctl.wantEnd(0)
		wantEqual(t, "left over", st.all(), "")
	})
}

// keeperCode is the exit code that an error of a command stands for.
func (s *server) keeperCode(err error) int {
	if err == nil {
		return 0
	}
	ended, ok := err.(*exec.ExitError)
	if !ok {
		s.t.Fatal(err)
	}
	return ended.ExitCode()
}

// Keepers, mutexes and etcdctl take turns at one name, and never meet: each makes a directory while it holds
// the name, which fails if the directory exists.
func TestKeepersAndEtcdsLocksNeverMeet(t *testing.T) {
	onOurs(t, func(t *testing.T, s *server) {
		const each, rounds = 2, 6
		inside := filepath.Join(t.TempDir(), "inside")
		script := fmt.Sprintf("mkdir '%s' && rmdir '%s'", inside, inside)
		var wg sync.WaitGroup
		repeat := func(what string, once func() error) {
			wg.Go(func() {
				for range rounds {
					if err := once(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		}
		told := func(cmd *exec.Cmd) error {
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
		for range each {
			repeat("run", func() error { return told(s.keeperRun("ns", "name", script)) })
			repeat("etcdctl", func() error {
				cmd := exec.CommandContext(t.Context(), binaries.etcdctl, s.ctlArguments([]string{"lock", "--", "ns/name", "sh", "-c", script})...)
				cmd.Env = ctlEnvironment()
				return told(cmd)
			})
			m := concurrency.NewMutex(s.session(60), "ns/name")
			repeat("mutex", func() error {
				if err := m.Lock(t.Context()); err != nil {
					return err
				}
				if err := os.Mkdir(inside, 0o700); err != nil {
					return err
				}
				if err := os.Remove(inside); err != nil {
					return err
				}
				return m.Unlock(t.Context())
			})
		}
		wg.Wait()
	})
}
