package etcd_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend/etcd"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
)

func TestLocksOfOtherProgramsAreListed(t *testing.T) {
	s := startStore(t)
	for _, prefix := range []string{"", "some/prefix"} {
		endpointstest.ListForeignLocks(t, s, openWith(t, etcd.Config{Endpoints: []string{s.Addr}, Prefix: prefix}))
	}
}

// etcdctl holds a lock and leads an election, and a second one waits for the lock.
func TestLocksOfEtcdctlAreListed(t *testing.T) {
	if *etcdctl == "" {
		t.Skip("needs etcdctl: conformance runs this with it")
	}
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("foreign")
	start := func(args ...string) {
		cmd := exec.Command(*etcdctl, append([]string{"--endpoints", s.Addr}, args...)...)
		ok(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // its error is the kill
		})
	}
	start("lock", name+"/lock")
	eventually(t, "etcdctl has the lock", func() bool { return len(s.Keys(name+"/lock/")) == 1 })
	start("lock", name+"/lock")
	start("elect", name+"/post", "me, etcdctl")
	eventually(t, "both others have keys", func() bool { return len(s.Keys(name+"/")) == 3 })
	got := endpointstest.ForeignLocksBelow(t, b, name)
	if len(got) != 2 || got[0].Name != name+"/lock" || got[0].Waiting != 1 || got[1].Name != name+"/post" || got[1].Text != "me, etcdctl" {
		t.Fatalf("%+v", got)
	}
	for _, l := range got {
		if !strings.HasPrefix(l.Holder, "etcd lease ") || l.Remaining <= 0 || l.Token == 0 {
			t.Errorf("%+v", l)
		}
	}
}
