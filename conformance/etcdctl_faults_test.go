package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Scripts of each version of etcdctl repeat commands that fail, and so finish while leaders are killed and a member is
// replaced: no acknowledged write is lost, no lease ends that is renewed, and no lock has two holders.
func TestEtcdctlScriptsOutliveKillsAndAReplacement(t *testing.T) {
	t.Parallel()
	if len(chosen(everyone)) == 0 {
		return
	}
	g := startCluster(t, leasekeeper)
	spare := g.newMember("d")
	g.reachable = append(g.reachable, spare)
	over, dir := make(chan struct{}), t.TempDir()
	var scripts []*retryingScript
	for _, v := range etcdctlVersions {
		path, err := v.build()
		wantOK(t, "building etcdctl", err)
		s := &server{t: t, target: everyone, cluster: g, endpoints: g.endpoints(), etcdctl: path}
		scripts = append(scripts, &retryingScript{t: t, s: s, name: v.String(), journal: filepath.Join(dir, "journal")})
	}
	var working sync.WaitGroup
	for _, script := range scripts {
		working.Go(func() {
			for script.rounds == 0 || !isClosed(over) {
				script.round()
			}
		})
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
		t.Logf("etcdctl %s: %d rounds, %d commands were repeated", script.name, script.rounds, script.repeated)
	}
	checkLockJournal(t, filepath.Join(dir, "journal"))
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

	rounds, repeated int
}

// round runs each kind of command once.
func (r *retryingScript) round() {
	r.rounds++
	key, value := "script/"+r.name, fmt.Sprint(r.rounds)
	r.must("put", key, value)
	r.want(key+"\n"+value+"\n", "get", key)
	r.want(key+"\n"+value+"\n", "get", key, "--consistency", "s", "--rev", r.revisionOf(key))
	r.transaction(key, value)
	r.lease(key)
	r.lock()
	r.watch(key, value)
	r.must("del", key)
	r.want("", "get", key)
}

// watch reads the last change of a key by watching it. A watch that ends with an error is started again.
func (r *retryingScript) watch(key, value string) {
	revision := r.revisionOf(key)
	for began := time.Now(); time.Since(began) < waitLimit; r.repeated++ {
		stream := r.s.startCtl("watch", key, "--rev", revision)
		limit := time.AfterFunc(waitLimit, func() { stream.cmd.Process.Kill() })
		var lines []string
		for line := range stream.lines {
			if lines = append(lines, line); len(lines) == 3 {
				break
			}
		}
		limit.Stop()
		stream.stop()
		if len(lines) == 3 {
			wantEqual(r.t, "etcdctl "+r.name+" watch", strings.Join(lines, " "), "PUT "+key+" "+value)
			return
		}
	}
	r.t.Errorf("etcdctl %s watch ends for %v", r.name, waitLimit)
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
	began := time.Now()
	for again := false; ; again = true {
		result := r.s.ctlWithInput(input, args...)
		if result.code == 0 || again && slices.ContainsFunc(answers, func(text string) bool { return strings.Contains(result.stderr, text) }) {
			return result
		}
		r.repeated++
		if time.Since(began) > waitLimit {
			r.t.Errorf("etcdctl %s %q fails for %v: %s", r.name, args, waitLimit, result.stderr)
			return result
		}
		time.Sleep(againAfter)
	}
}
