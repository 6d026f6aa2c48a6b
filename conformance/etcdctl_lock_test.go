package conformance

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// wantMember checks that etcdctl prints a key below the name, and its value,
// which is how lock and elect say that they have succeeded.
func (c *ctlStream) wantMember(name, value string) string {
	c.t.Helper()
	key := c.line()
	if !regexp.MustCompile("^" + name + "/[0-9a-f]+$").MatchString(key) {
		c.t.Fatalf("etcdctl printed %q instead of a key of %q", key, name)
	}
	c.want("value", value)
	return key
}

func TestEtcdctlLock(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		first := s.startCtl("lock", "name")
		key := first.wantMember("name", "")
		wantEqual(t, "key", strings.HasPrefix(st.all(), key+"= c2 m2 v1 lease "), true)
		second := s.startCtl("lock", "name")
		st.awaitMembers("name", 2)
		third := s.startCtl("lock", "name")
		st.awaitMembers("name", 3)
		wantEqual(t, "those who wait have printed", len(second.lines)+len(third.lines), 0)

		first.signal(os.Interrupt)
		first.wantEnd(0)
		second.wantMember("name", "")
		wantEqual(t, "the third has printed", len(third.lines), 0)
		second.signal(syscall.SIGTERM)
		second.wantEnd(0)
		third.wantMember("name", "")
		// A waiter may give up too.
		fourth := s.startCtl("lock", "name")
		st.awaitMembers("name", 2)
		fourth.signal(os.Interrupt)
		fourth.wantEnd(1)
		st.awaitMembers("name", 1)
		third.signal(os.Interrupt)
		third.wantEnd(0)
		wantEqual(t, "left over", st.all(), "")
	})
}

func TestEtcdctlLockHolderIsKilled(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		holder := s.startCtl("lock", "--ttl", "2", "name")
		holder.wantMember("name", "")
		next := s.startCtl("lock", "name")
		st.awaitMembers("name", 2)
		holder.stop()
		next.wantMember("name", "")
		wantEqual(t, "only the new holder", st.members("name"), 1)
	})
}

func TestEtcdctlLockLosesItsLease(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		holder := s.startCtl("lock", "--ttl", "3", "name")
		key := holder.wantMember("name", "")
		s.mustCtl("lease", "revoke", strings.TrimPrefix(key, "name/"))
		holder.wantEnd(1)
		wantEqual(t, "message", holder.lastError(), "Error: session expired")
		wantEqual(t, "left over", st.all(), "")
	})
}

func TestEtcdctlLockRunsACommand(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		r := s.ctl("lock", "--", "name", "sh", "-c", `echo "$ETCD_LOCK_KEY $ETCD_LOCK_REV"; exit 3`)
		wantEqual(t, "exit status of the command", r.code, 3)
		if !regexp.MustCompile(`^name/[0-9a-f]+ 2\n$`).MatchString(r.stdout) {
			t.Errorf("the command printed %q", r.stdout)
		}
		wantEqual(t, "left over", s.store().all(), "")
		// One at a time: each of these would see the other's line half written.
		script := `echo "in $$"; sleep 0.05; echo "out $$"`
		a := s.startCtl("lock", "--", "name", "sh", "-c", script)
		b := s.startCtl("lock", "--", "name", "sh", "-c", script)
		for _, c := range []*ctlStream{a, b} {
			in := c.line()
			wantEqual(t, "out", c.line(), strings.Replace(in, "in", "out", 1))
			c.wantEnd(0)
		}
	})
}

func TestEtcdctlLockAndMutexExcludeEachOther(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		holder := s.startCtl("lock", "name")
		holder.wantMember("name", "")
		m := concurrency.NewMutex(s.session(60), "name")
		wantIs(t, "mutex", m.TryLock(s.context()), concurrency.ErrLocked)
		got := begin(func() error { return m.Lock(s.context()) })
		st.awaitMembers("name", 2)
		holder.signal(os.Interrupt)
		holder.wantEnd(0)
		wantOK(t, "mutex", due(t, "lock", waitLimit, got))
		next := s.startCtl("lock", "name")
		st.awaitMembers("name", 2)
		wantEqual(t, "printed while it waits", len(next.lines), 0)
		wantOK(t, "unlock", m.Unlock(s.context()))
		next.wantMember("name", "")
	})
}

func TestEtcdctlElect(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		observer := s.startCtl("elect", "-l", "office")
		first := s.startCtl("elect", "office", "one")
		key := first.wantMember("office", "one")
		wantEqual(t, "observed", observer.wantMember("office", "one"), key)
		second := s.startCtl("elect", "office", "two")
		st.awaitMembers("office", 2)
		wantEqual(t, "the second has printed", len(second.lines), 0)
		first.signal(os.Interrupt)
		first.wantEnd(0)
		key = second.wantMember("office", "two")
		wantEqual(t, "observed", observer.wantMember("office", "two"), key)

		// An ordinary client takes part like any other.
		e := concurrency.NewElection(s.session(60), "office")
		won := begin(func() error { return e.Campaign(s.context(), "three") })
		st.awaitMembers("office", 2)
		s.mustCtl("lease", "revoke", strings.TrimPrefix(key, "office/"))
		wantOK(t, "campaign", due(t, "campaign", waitLimit, won))
		wantEqual(t, "observed", observer.wantMember("office", "three"), e.Key())
		observer.signal(os.Interrupt)
		observer.wantEnd(0)
	})
}

// etcdctl elect takes its lease for a minute and has no flag for it, so
// the test revokes the lease of a killed one.
func TestEtcdctlElectLeaderIsKilled(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		first := s.startCtl("elect", "office", "one")
		key := first.wantMember("office", "one")
		second := s.startCtl("elect", "office", "two")
		st.awaitMembers("office", 2)
		first.stop()
		wantEqual(t, "the key outlives its process", st.get(key).Count, 1)
		wantEqual(t, "the second has printed", len(second.lines), 0)
		s.mustCtl("lease", "revoke", strings.TrimPrefix(key, "office/"))
		second.wantMember("office", "two")
	})
}
