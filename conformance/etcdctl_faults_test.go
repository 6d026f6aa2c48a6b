package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// attemptLimit bounds one attempt at a command that runs until it is stopped.
const attemptLimit = waitLimit / 4

// Scripts of each version of etcdctl repeat commands that fail, and so finish while leaders are killed and a member is
// replaced: no acknowledged write is lost, no lease ends that is renewed, and no lock has two holders. docs/compatibility.md
// names the commands.
func TestEtcdctlScriptsOutliveKillsAndAReplacement(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	g := startCluster(t, leasekeeper)
	spare := g.newMember("d")
	g.reachable = append(g.reachable, spare)
	prepareScripts(&server{t: t, target: everyone, cluster: g, endpoints: g.endpoints()})
	over, dir := make(chan struct{}), t.TempDir()
	var scripts []*retryingScript
	for _, v := range etcdctlVersions {
		path, err := v.build()
		wantOK(t, "building etcdctl", err)
		s := &server{t: t, target: everyone, cluster: g, endpoints: g.endpoints(), etcdctl: path}
		scripts = append(scripts, &retryingScript{t: t, s: s, name: v.String(), journal: filepath.Join(dir, "journal"), ran: make(map[string]bool)})
	}
	var working sync.WaitGroup
	for _, script := range scripts {
		working.Go(func() { script.work(over) })
	}
	for range 2 {
		time.Sleep(killEvery)
		leader := g.leader()
		leader.kill()
		time.Sleep(deadFor)
		wantOK(t, "start of the killed leader", leader.run())
	}
	removed := g.leader()
	g.join(spare)
	g.removed(removed)
	time.Sleep(killEvery)
	close(over)
	working.Wait()
	for _, script := range scripts {
		t.Logf("etcdctl %s: %d rounds began, %d commands were repeated", script.name, script.rounds, script.repeated)
	}
	checkLockJournal(t, filepath.Join(dir, "journal"))
	checkCommandsNamed(t, scripts)
}

// checkCommandsNamed checks that docs/compatibility.md names the commands that the scripts ran, and no others.
func checkCommandsNamed(t *testing.T, scripts []*retryingScript) {
	t.Helper()
	page, err := os.ReadFile("../docs/compatibility.md")
	wantOK(t, "reading the page", err)
	_, list, _ := strings.Cut(string(page), "in scripts of each version that repeat what fails:\n")
	list, _, _ = strings.Cut(list, ". ")
	var named []string
	for _, code := range regexp.MustCompile("`[^`]+`").FindAllString(list, -1) {
		command, _, _ := strings.Cut(strings.Trim(code, "`"), " --")
		named = append(named, command)
	}
	slices.Sort(named)
	for _, script := range scripts {
		wantEqual(t, "the commands of etcdctl "+script.name, fmt.Sprint(slices.Sorted(maps.Keys(script.ran))), fmt.Sprint(named))
	}
}

// prepareScripts makes the user and the role that the scripts read.
func prepareScripts(s *server) {
	s.t.Helper()
	s.mustCtl("user", "add", "reader", "--no-password")
	s.mustCtl("role", "add", "readers")
	s.mustCtl("role", "grant-permission", "readers", "read", "a", "c")
	s.mustCtl("user", "grant-role", "reader", "readers")
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// checkLockJournal checks that each holder of the lock left before the next one came.
func checkLockJournal(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	wantOK(t, "the journal of the lock", err)
	lines := strings.Fields(string(data))
	for i, line := range lines {
		kind, holder, _ := strings.Cut(line, ":")
		if kind == "out" && (i == 0 || lines[i-1] != "in:"+holder) {
			t.Errorf("line %d of the journal is %s after %q", i+1, line, lines[max(i-1, 0)])
		}
	}
	wantEqual(t, "the lock was held", len(lines) > 0, true)
}

// retryingScript is one user of etcdctl.
type retryingScript struct {
	t       *testing.T
	s       *server
	name    string
	journal string // path; each holder of the lock writes two lines to it

	rounds   int             // how many began
	repeated int             // commands
	ran      map[string]bool // the commands, without flags
}

// note notes that a command runs.
func (r *retryingScript) note(args []string) {
	command := args[0]
	switch command {
	case "lease", "member", "endpoint", "snapshot", "user", "role", "alarm":
		command += " " + args[1]
	}
	r.ran[command] = true
}

// work runs each kind of command once in each round. When over is closed it finishes the first round, and no other.
func (r *retryingScript) work(over <-chan struct{}) {
	key := "script/" + r.name
	for r.rounds = 1; ; r.rounds++ {
		for _, step := range r.steps(key, fmt.Sprint(r.rounds)) {
			if r.rounds > 1 && isClosed(over) {
				return
			}
			step()
		}
	}
}

// steps are those of a round, which writes a value to a key.
func (r *retryingScript) steps(key, value string) []func() {
	return []func(){
		func() {
			r.must("put", key, value)
			r.want(key+"\n"+value+"\n", "get", key)
			r.want(key+"\n"+value+"\n", "get", key, "--consistency", "s", "--rev", r.revisionOf(key))
		},
		func() { r.transaction(key, value) },
		func() { r.lease(key) },
		r.lock,
		func() { r.watch(key, value) },
		func() { r.election(key, value) },
		func() { r.snapshot(r.members()) },
		func() {
			r.want("User: reader\nRoles: readers\n", "user", "get", "reader")
			r.want("Role readers\nKV Read:\n\t[a, c)\nKV Write:\n", "role", "get", "readers")
		},
		func() { r.users(value) },
		func() { r.maintenance() },
		func() { r.compaction(key) },
		func() {
			r.must("del", key)
			r.want("", "get", key)
		},
	}
}

// watch reads the last change of a key by watching it.
func (r *retryingScript) watch(key, value string) {
	revision := r.revisionOf(key)
	lines := r.printed(3, func(int) []string { return []string{"watch", key, "--rev", revision} })
	wantEqual(r.t, "etcdctl "+r.name+" watch", strings.Join(lines, " "), "PUT "+key+" "+value)
}

// election wins an election, and reads its leader as another client. The session of an etcdctl that was stopped stays for a
// minute, and so does its candidate. So each attempt has an election of its own.
func (r *retryingScript) election(key, value string) {
	name := ""
	won := r.printed(2, func(attempt int) []string {
		name = fmt.Sprintf("%s/office/%s/%d", key, value, attempt)
		return []string{"elect", name, value}
	})
	if len(won) != 2 || !strings.HasPrefix(won[0], name+"/") || won[1] != value {
		r.t.Errorf("etcdctl %s elect %s prints %q", r.name, name, won)
	}
	seen := r.printed(2, func(int) []string { return []string{"elect", "--listen", name} })
	wantEqual(r.t, "etcdctl "+r.name+" elect --listen", fmt.Sprint(seen), fmt.Sprint(won))
}

// members asks about the members, of which a majority runs at any time, and returns the endpoints of those that answer.
func (r *retryingScript) members() (endpoints []string) {
	if out := r.must("member", "list").stdout; strings.Count(out, "\n") < 3 {
		r.t.Errorf("etcdctl %s member list prints %q", r.name, out)
	}
	r.until("", func(result ctlResult) bool { // etcdctl 3.4 prints the health to its standard error
		return strings.Count(result.stdout+result.stderr, " is healthy: ") >= 2
	}, "endpoint", "health", "--cluster")
	r.until("", func(result ctlResult) bool {
		endpoints = nil
		for line := range strings.Lines(result.stdout) {
			endpoint, _, _ := strings.Cut(line, ", ")
			endpoints = append(endpoints, endpoint)
		}
		return len(endpoints) >= 2
	}, "endpoint", "status", "--cluster")
	return endpoints
}

// snapshot saves a snapshot of a member, and checks its digest. Another attempt asks another member.
func (r *retryingScript) snapshot(endpoints []string) {
	if len(endpoints) == 0 {
		return // the test has failed
	}
	path := filepath.Join(filepath.Dir(r.journal), "snapshot-"+r.name)
	lines := r.printed(1, func(attempt int) []string {
		return []string{"snapshot", "save", path, "--endpoints", endpoints[(r.rounds+attempt)%len(endpoints)]}
	})
	wantEqual(r.t, "etcdctl "+r.name+" snapshot save", strings.Join(lines, " "), "Snapshot saved at "+path)
	data, err := os.ReadFile(path)
	wantOK(r.t, "reading the snapshot", err)
	checkSnapshot(r.t, data)
}

// users makes a role and a user of this script, and deletes them. An attempt whose answer was lost may have made or deleted
// them already.
func (r *retryingScript) users(value string) {
	role, user := fmt.Sprintf("role-%s-%s", r.name, value), fmt.Sprintf("user-%s-%s", r.name, value)
	there, gone := []string{"already exists"}, []string{"not found"}
	r.repeat("", there, "role", "add", role)
	r.must("role", "grant-permission", role, "readwrite", "a", "b")
	r.repeat("", there, "user", "add", user, "--no-password")
	r.repeat("", there, "user", "grant-role", user, role)
	for _, list := range []struct{ kind, name string }{{"role", role}, {"user", user}} {
		if out := r.must(list.kind, "list").stdout; !strings.Contains("\n"+out, "\n"+list.name+"\n") {
			r.t.Errorf("etcdctl %s %s list prints %q without %s", r.name, list.kind, out, list.name)
		}
	}
	r.repeat("", []string{"is not granted"}, "user", "revoke-role", user, role)
	r.repeat("", []string{"is not granted"}, "role", "revoke-permission", role, "a", "b")
	r.repeat("", gone, "user", "delete", user)
	r.repeat("", gone, "role", "delete", role)
}

// maintenance asks all members for the hash of their keys and to defragment. A majority answers at any time.
func (r *retryingScript) maintenance() {
	r.want("", "alarm", "list")
	r.want("", "alarm", "disarm")
	r.until("", func(result ctlResult) bool { return strings.Count(result.stdout, "\n") >= 2 }, "endpoint", "hashkv", "--cluster")
	r.until("", func(result ctlResult) bool {
		return strings.Count(result.stdout+result.stderr, "Finished defragmenting") >= 2
	}, "defrag", "--cluster")
}

// compaction compacts a revision of the first rounds, which no script reads any more. Another script may have compacted it
// already.
func (r *retryingScript) compaction(key string) {
	compacted := func(result ctlResult) bool { return strings.Contains(result.stderr, textCompacted) }
	r.until("", func(result ctlResult) bool { return result.code == 0 || compacted(result) }, "compaction", fmt.Sprint(r.rounds+1))
	r.until("", compacted, "get", key, "--rev", fmt.Sprint(r.rounds))
}

// revisionOf returns the revision of the last change of a key.
func (r *retryingScript) revisionOf(key string) string {
	for _, line := range strings.Split(r.must("get", key, "-w", "fields").stdout, "\n") {
		if revision, ok := strings.CutPrefix(line, `"ModRevision" : `); ok {
			return revision
		}
	}
	r.t.Errorf("etcdctl %s: %s has no revision", r.name, key)
	return "1"
}

// transaction writes a key if nobody has written it since.
func (r *retryingScript) transaction(key, value string) {
	txn := ctlTxn([]string{fmt.Sprintf("val(%q) = %q", key, value)}, []string{"put " + key + "/txn " + value, "get " + key}, nil)
	out := r.repeat(txn, nil, "txn").stdout
	wantEqual(r.t, "etcdctl "+r.name+" txn", out, fmt.Sprintf("SUCCESS\n\nOK\n\n%s\n%s\n", key, value))
}

// lease keeps a key for as long as a lease.
func (r *retryingScript) lease(key string) {
	id := anyID.FindString(r.must("lease", "grant", "60").stdout)
	r.must("put", key+"/leased", "1", "--lease="+id)
	if out := r.must("lease", "list").stdout; !strings.Contains(out, id+"\n") {
		r.t.Errorf("etcdctl %s lease list prints %q without %s", r.name, out, id)
	}
	r.want(fmt.Sprintf("lease %s keepalived with TTL(60)\n", id), "lease", "keep-alive", "--once", id)
	out := r.must("lease", "timetolive", id, "--keys").stdout
	if !strings.Contains(out, "granted with TTL(60s)") || !strings.Contains(out, "attached keys(["+key+"/leased])") {
		r.t.Errorf("etcdctl %s lease timetolive prints %q", r.name, out)
	}
	r.repeat("", []string{textLeaseNotFound}, "lease", "revoke", id)
	r.want("", "get", key+"/leased")
}

// lock runs a command while it holds a lock that all scripts share.
func (r *retryingScript) lock() {
	note := fmt.Sprintf(`id=%s-$$; echo in:$id >>'%s'; sleep 0.02; echo out:$id >>'%s'`, r.name, r.journal, r.journal)
	r.must("lock", "shared", "--ttl", "15", "--", "sh", "-c", note)
}

// must runs a command again and again until it succeeds.
func (r *retryingScript) must(args ...string) ctlResult { return r.repeat("", nil, args...) }

func (r *retryingScript) want(out string, args ...string) {
	wantEqual(r.t, fmt.Sprintf("etcdctl %s %q", r.name, args), r.must(args...).stdout, out)
}

// repeat is must. The errors are answers as well, if an earlier attempt may have had an effect.
func (r *retryingScript) repeat(input string, answers []string, args ...string) ctlResult {
	again := false
	return r.until(input, func(result ctlResult) bool {
		done := result.code == 0 || again && slices.ContainsFunc(answers, func(text string) bool { return strings.Contains(result.stderr, text) })
		again = true
		return done
	}, args...)
}

// until runs a command again and again until its result is an answer.
func (r *retryingScript) until(input string, isAnswer func(ctlResult) bool, args ...string) ctlResult {
	r.note(args)
	for began := time.Now(); ; time.Sleep(againAfter) {
		result := r.s.ctlWithInput(input, args...)
		if isAnswer(result) {
			return result
		}
		r.repeated++
		if time.Since(began) > waitLimit {
			r.t.Errorf("etcdctl %s %q fails for %v: %s%s", r.name, args, waitLimit, result.stdout, result.stderr)
			return result
		}
	}
}

// printed returns the first lines of a command that runs until it is stopped. A command that ends before, or prints less for
// attemptLimit, is started again.
func (r *retryingScript) printed(lines int, command func(attempt int) []string) []string {
	began := time.Now()
	for attempt := 0; ; attempt++ {
		args := command(attempt)
		r.note(args)
		stream := r.s.startCtl(args...)
		limit := time.AfterFunc(attemptLimit, func() { stream.cmd.Process.Kill() })
		var printed []string
		for line := range stream.lines {
			if printed = append(printed, line); len(printed) == lines {
				break
			}
		}
		limit.Stop()
		stream.stop()
		if len(printed) == lines {
			return printed
		}
		r.repeated++
		if time.Since(began) > waitLimit {
			r.t.Errorf("etcdctl %s %q fails for %v: %q %s", r.name, args, waitLimit, printed, stream.stderr)
			return nil
		}
		time.Sleep(againAfter)
	}
}
