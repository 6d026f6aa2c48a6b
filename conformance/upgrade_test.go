package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// memberVersions is what `leasekeeper status` says of a member.
type memberVersions struct {
	Name           string `json:"name"`
	State          string `json:"state"`
	Lag            uint64 `json:"lag"`
	VoteHoldOffMs  int64  `json:"vote_hold_off_ms"`
	Understands    int    `json:"understands"`
	ClusterVersion int    `json:"cluster_version"`
	VersionInUse   int    `json:"version_in_use"`
}

// memberStatus asks a member for the state of all members.
func (g *cluster) memberStatus(m *server) []memberVersions {
	g.t.Helper()
	out, err := exec.CommandContext(g.t.Context(), binaries.server[leasekeeper], "status", "--endpoint", m.grpcAddr, "-o", "json").Output()
	wantOK(g.t, "status", err)
	var s struct {
		Members []memberVersions `json:"members"`
	}
	wantOK(g.t, "status", json.Unmarshal(out, &s))
	return s.Members
}

// await polls the state of all members, as m sees it, until each is as wanted.
func (g *cluster) await(m *server, what string, wanted func(memberVersions) bool) {
	g.t.Helper()
	var seen []memberVersions
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		seen = g.memberStatus(m)
		n := 0
		for _, s := range seen {
			if wanted(s) {
				n++
			}
		}
		if n == len(g.members) {
			return
		}
	}
	g.t.Fatalf("not all members %s: %+v", what, seen)
}

// replace stops a member and starts another program on its data directory, as docs/operations.md says: the next member
// follows once this one is up, has caught up and votes.
func (g *cluster) replace(m *server, program string) {
	g.t.Helper()
	m.stop()
	m.program = program
	m.start()
	g.await(m, "are up and vote", func(s memberVersions) bool { return s.State == "up" && s.Lag < 100 && s.VoteHoldOffMs == 0 })
}

// All members change from the previous program to this one, back, and to this one again, one after the other and under
// load. Nothing acknowledged is lost, no token repeats or falls, and no lease ends early.
func TestRollingUpgradeAndDowngradeKeepEveryPromise(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	old := previous(t)
	g := startClusterOf(t, old)
	l := g.load()
	for round, program := range []string{"", old, ""} {
		for _, m := range g.members {
			l.progress()
			g.replace(m, program)
		}
		if program == "" {
			g.await(g.members[0], "state the newest version", func(s memberVersions) bool {
				return s.ClusterVersion == s.Understands && s.Understands > 1 && s.VersionInUse < s.Understands
			})
		}
		t.Logf("round %d: %d writes, %d tenures, %d leases", round, l.writes.Load(), l.tenures(), l.leases.Load())
	}
	l.progress()
	l.end()
}

// Durations, the drift bound and limits change by restarting one member after another, to longer ones and back, under the
// same load. The members count with the more careful of two values.
func TestSettingsChangeByARollingRestart(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	g := startCluster(t, leasekeeper)
	l := g.load()
	longer := []string{"--master-lease", "2s", "--election-timeout", "2500ms", "--read-timeout", "3s", "--clock-drift", "5%", "--max-leases", "5000"}
	for _, flags := range [][]string{longer, nil} {
		for _, m := range g.members {
			l.progress()
			m.flags = flags
			g.replace(m, "")
		}
	}
	l.progress()
	l.end()
}

// startClusterOf starts a cluster of a program.
func startClusterOf(t *testing.T, program string) *cluster {
	t.Helper()
	return startClusterWith(t, leasekeeper, func(m *server) { m.program = program })
}

// upgradeLoad is what clients do while programs are replaced.
type upgradeLoad struct {
	t       *testing.T
	g       *cluster
	s       *server // whose clients know all members
	dir     string
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup
	writes  atomic.Int64 // acknowledged
	leases  atomic.Int64 // that were there shortly before their end
	held    *exec.Cmd
	failed  chan error
}

// load starts clients that write, take turns at a name, let leases end, and renew one lease all the time.
func (g *cluster) load() *upgradeLoad {
	l := &upgradeLoad{t: g.t, g: g, s: g.everyone(), dir: g.t.TempDir(), failed: make(chan error, 1)}
	l.ctx, l.cancel = context.WithCancel(g.t.Context())
	g.t.Cleanup(func() { l.cancel(); l.working.Wait() })
	l.held = l.command(g.t.Context(), "held", `touch "$DIR/taken"; until [ -e "$DIR/over" ]; do sleep 0.05; done`)
	l.working.Go(func() {
		out, err := l.held.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("the command that holds a name all the time: %w: %s", err, out)
		}
		l.failed <- err
	})
	for worker := range 2 {
		l.working.Go(func() { l.write(worker) })
		l.working.Go(l.takeTurns)
		l.working.Go(l.letEnd)
	}
	return l
}

// command runs a script under the lease of a name.
func (l *upgradeLoad) command(ctx context.Context, name, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binaries.server[leasekeeper], "run", "--ttl", "5s",
		"--store", "leasekeeper://"+strings.Join(l.g.endpoints(), ",")+"/upgrade", name, "-c", script)
	cmd.Env = append(os.Environ(), "DIR="+l.dir)
	return cmd
}

// write puts keys that no other worker puts. A call that fails is repeated: its outcome is not known.
func (l *upgradeLoad) write(worker int) {
	c := l.s.client()
	for i := 0; l.ctx.Err() == nil; i++ {
		for l.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(l.ctx, 2*time.Second)
			_, err := c.Put(ctx, fmt.Sprintf("written/%d/%d", worker, i), "")
			cancel()
			if err == nil {
				l.acknowledge(fmt.Sprintf("written/%d/%d", worker, i))
				break
			}
		}
	}
}

// acknowledge notes a key that an answer has named.
func (l *upgradeLoad) acknowledge(key string) {
	f, err := os.OpenFile(filepath.Join(l.dir, "acknowledged"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(key + "\n")
	}
	if err != nil {
		l.t.Error(err)
	}
	f.Close()
	l.writes.Add(1)
}

// takeTurns has processes hold a name, each of which appends its token to a file while it does. A process that a change of
// programs has cut off is replaced by the next.
func (l *upgradeLoad) takeTurns() {
	for l.ctx.Err() == nil {
		l.command(l.ctx, "turns", `echo "$LEASEKEEPER_TOKEN" >> "$DIR/tokens"`).Run()
	}
}

// tokens returns the tokens of the processes that have held the name, in this order.
func (l *upgradeLoad) tokens() []string {
	text, err := os.ReadFile(filepath.Join(l.dir, "tokens"))
	if err != nil && !os.IsNotExist(err) {
		l.t.Error(err)
	}
	return strings.Fields(string(text))
}

func (l *upgradeLoad) tenures() int { return len(l.tokens()) }

// letEnd grants leases with a key and does not renew them. Shortly before the end, counted from before the grant, the key
// must be there.
func (l *upgradeLoad) letEnd() {
	const ttl, early = 4, 500 * time.Millisecond
	c := l.s.client()
	for i := 0; l.ctx.Err() == nil; i++ {
		ctx, cancel := context.WithTimeout(l.ctx, 2*time.Second)
		granting := time.Now()
		lease, err := c.Grant(ctx, ttl)
		key := ""
		if err == nil {
			key = fmt.Sprintf("leased/%x", lease.ID)
			_, err = c.Put(ctx, key, "", clientv3.WithLease(lease.ID))
		}
		cancel()
		if err != nil {
			continue
		}
		time.Sleep(time.Until(granting.Add(ttl*time.Second - early)))
		ctx, cancel = context.WithDeadline(l.ctx, granting.Add(ttl*time.Second))
		resp, err := c.Get(ctx, key)
		cancel()
		if err == nil && time.Since(granting) < ttl*time.Second {
			if l.leases.Add(1); len(resp.Kvs) != 1 {
				l.t.Errorf("lease %x has ended %v after its grant", lease.ID, time.Since(granting))
			}
		}
	}
}

// progress returns when each kind of client has got on.
func (l *upgradeLoad) progress() {
	l.t.Helper()
	writes, tenures, leases := l.writes.Load(), l.tenures(), l.leases.Load()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(l.dir, "taken")); err == nil && l.writes.Load() > writes+10 && l.tenures() > tenures+2 && l.leases.Load() > leases {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("from %d writes, %d tenures and %d leases to %d, %d and %d", writes, tenures, leases, l.writes.Load(), l.tenures(), l.leases.Load())
		}
	}
}

// end ends the clients and checks what they have seen.
func (l *upgradeLoad) end() {
	l.t.Helper()
	wantOK(l.t, "ending", os.WriteFile(filepath.Join(l.dir, "over"), nil, 0o600))
	wantOK(l.t, "renewals", <-l.failed)
	l.cancel()
	l.working.Wait()
	last := int64(0)
	for _, text := range l.tokens() {
		token, err := strconv.ParseInt(text, 10, 64)
		wantOK(l.t, "token", err)
		if token <= last {
			l.t.Errorf("token %d follows token %d", token, last)
		}
		last = token
	}
	resp, err := l.s.client().Get(l.s.context(), "written/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	wantOK(l.t, "reading", err)
	there := make(map[string]bool)
	for _, kv := range resp.Kvs {
		there[string(kv.Key)] = true
	}
	text, err := os.ReadFile(filepath.Join(l.dir, "acknowledged"))
	wantOK(l.t, "acknowledged writes", err)
	for _, key := range strings.Fields(string(text)) {
		if !there[key] {
			l.t.Errorf("%s was acknowledged and is lost", key)
		}
	}
}

// A feature of a version is refused until all members know the version. Once it was used, older programs refuse the data
// directory and say what to do, and the members refuse an older program with a new directory.
func TestOlderProgramsAreRefusedOnceAVersionIsInUse(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	old, next := previous(t), later(t)
	g := startClusterOf(t, next)
	m := g.members[2]
	pin := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), next, "pin", "x", "--store", "leasekeeper://"+strings.Join(g.endpoints()[:2], ",")+"/ns").CombinedOutput()
		return string(out), err
	}
	for _, program := range []string{"", old} {
		g.replace(m, program)
		if out, err := pin(); err == nil || !strings.Contains(out, "all members of the cluster must run this version and be reachable") {
			t.Errorf("with an older member: %v: %s", err, out)
		}
	}
	g.replace(m, next)
	hold := exec.CommandContext(t.Context(), next, "acquire", "x", "--store", "leasekeeper://"+strings.Join(g.endpoints(), ",")+"/ns")
	out, err := hold.CombinedOutput()
	wantOK(t, "acquire: "+string(out), err)
	said, err := pin()
	wantOK(t, "pin with new members: "+said, err)
	g.await(m, "have the version in use", func(s memberVersions) bool { return s.VersionInUse == s.Understands })

	m.stop()
	for program, want := range map[string]string{"": "start the newer program again", old: "use the version of leasekeeper that wrote it"} {
		m.program = program
		m.wantRefusal(want)
	}
	kept := m.dir + ".kept"
	wantOK(t, "keeping the directory", os.Rename(m.dir, kept))
	for program, want := range map[string]string{"": "start the newer program on both", old: "upgrade one release at a time"} {
		m.program = program
		m.wantLog(want)
		wantOK(t, "removing the new directory", os.RemoveAll(m.dir))
	}
	wantOK(t, "putting the directory back", os.Rename(kept, m.dir))
	m.program = next
	m.start()
	g.await(m, "are up", func(s memberVersions) bool { return s.State == "up" })
}

// A cluster of the previous program is upgraded, and goes back until its members change. While one member runs the previous
// program, no change is made. After a change the previous program refuses the directory of each member, and the members
// refuse it with a new directory.
func TestPreviousProgramIsRefusedOnceTheMembersHaveChanged(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	old, ours := previous(t), binaries.server[leasekeeper]
	g := startClusterOf(t, old)
	first, last := g.members[0], g.members[2]
	for _, m := range g.members {
		g.replace(m, "")
	}
	g.replace(last, old)
	d := g.newMember("d")
	request := &pb.MemberAddRequest{PeerURLs: []string{d.peerURL()}, IsLearner: true}
	eventually(t, waitLimit, "a change is refused because of the older member", func() bool {
		_, err := first.stubs().MemberAdd(first.context(), request)
		if err == nil {
			t.Fatal("the members change while one of them does not know changes")
		}
		return statusIs(err, codes.FailedPrecondition, "not all members of the cluster are known to understand this request")
	})
	g.replace(last, "")
	g.await(first, "state that version", func(s memberVersions) bool { return s.ClusterVersion == s.Understands })

	mustExecute(t, ours, "member", "add", "d", "--peer", d.peerAddr, "--learner", "--endpoint", first.grpcAddr, "--timeout", "20s")
	g.members = append(g.members, d)
	d.start()
	d.joins = false // the previous program does not know that flag
	mustExecute(t, ours, "member", "promote", fmt.Sprintf("%x", first.listedAs(d.peerURL()).ID), "--wait", "20s", "--endpoint", first.grpcAddr)
	g.await(first, "use the version of changes", func(s memberVersions) bool { return s.VersionInUse > 0 })
	for _, m := range []*server{last, d} {
		m.stop()
		m.program = old
		m.wantRefusal("use the version of leasekeeper that wrote it")
		m.program = ""
		m.start()
		g.await(first, "are up and vote", func(s memberVersions) bool { return s.State == "up" && s.VoteHoldOffMs == 0 })
	}
	last.stop()
	kept := last.dir + ".kept"
	wantOK(t, "keeping the directory", os.Rename(last.dir, kept))
	last.program = old
	last.wantLog("upgrade one release at a time")
	wantOK(t, "removing the new directory", os.RemoveAll(last.dir))
	wantOK(t, "putting the directory back", os.Rename(kept, last.dir))
	last.program = ""
	last.start()
	g.await(first, "are up", func(s memberVersions) bool { return s.State == "up" })
}

// wantRefusal starts a program that must end by itself and say why.
func (s *server) wantRefusal(want string) {
	s.t.Helper()
	before := s.logSize()
	wantOK(s.t, "launching", s.launch())
	select {
	case <-s.process.Exited():
	case <-time.After(startLimit):
		s.t.Errorf("%q runs on the directory", s.program)
	}
	code := s.process.ExitCode()
	s.kill()
	if text := s.logFrom(before); code <= 0 || !strings.Contains(text, want) {
		s.t.Errorf("%q ended with %d and does not say %q: %s", s.program, code, want, text)
	}
}

// wantLog starts a program that must log a text, and kills it.
func (s *server) wantLog(want string) {
	s.t.Helper()
	before := s.logSize()
	wantOK(s.t, "launching", s.launch())
	defer s.kill()
	for deadline := time.Now().Add(startLimit); !strings.Contains(s.logFrom(before), want); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Errorf("%q does not log %q: %s", s.program, want, s.logFrom(before))
			return
		}
	}
}

func (s *server) logSize() int {
	return len(s.logFrom(0))
}

// logFrom returns what the lives of the process have logged after the first bytes.
func (s *server) logFrom(size int) string {
	text, err := os.ReadFile(s.logs)
	wantOK(s.t, "log", err)
	return string(text[size:])
}

// Data that was restored with a hold-off is refused by programs from before hold-offs, which would grant names during it. Without
// a hold-off the older program runs on it.
func TestOlderProgramRefusesAHoldOff(t *testing.T) {
	t.Parallel()
	if len(chosen(leasekeeper)) == 0 {
		return
	}
	old := previous(t)
	s := startServer(t, leasekeeper)
	s.store().put("k", "v")
	saved, ours := filepath.Join(t.TempDir(), "snapshot"), binaries.server[leasekeeper]
	mustExecute(t, ours, "snapshot", "save", saved, "--endpoint", s.grpcAddr)
	s.stop()
	for holdOff, refused := range map[string]bool{"1h": true, "0s": false} {
		restored := newServer(t, leasekeeper)
		restored.program = old
		restored.grpcAddr, restored.httpAddr, restored.peerAddr = freeAddr(t), freeAddr(t), freeAddr(t)
		mustExecute(t, ours, "snapshot", "restore", saved, "--data-dir", restored.dir, "--hold-off", holdOff)
		if refused {
			wantOK(t, "log", os.WriteFile(restored.logs, nil, 0o600))
			restored.wantRefusal("use the version of leasekeeper that wrote it")
			continue
		}
		restored.start()
		if kvs := restored.store().get("k").Kvs; len(kvs) != 1 || string(kvs[0].Value) != "v" {
			t.Errorf("the older program has %v", kvs)
		}
	}
}
