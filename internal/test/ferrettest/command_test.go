//go:build unix

package ferrettest

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// command is the real command, as it is built for users, with a store in a database of the test's own.
type command struct {
	path  string
	store string
}

// build builds the command. Its leases are on the server at uri.
func build(t *testing.T, uri string) command {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leasekeeper")
	compile := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/leasekeeper")
	compile.Dir = filepath.Join("..", "..", "..")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("the command cannot be built: %v\n%s", err, out)
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	return command{path, urlOf(t, uri, "jobs")}
}

// at returns the command with a namespace of its own.
func (c command) at(namespace string) command {
	c.store = strings.Replace(c.store, "ns=jobs", "ns="+namespace, 1)
	return c
}

// run runs the command to its end. The word STORE stands for the store's URL.
func (c command) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	words := append([]string(nil), args...)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "STORE", c.store)
	}
	cmd := exec.CommandContext(t.Context(), c.path, words...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errOut, time.Second
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("%v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// step is one command line, with its exit code and patterns for its output. An empty pattern means no output.
type step struct {
	line           string
	code           int
	stdout, stderr string
}

// play runs steps one after another. Each needs the ones before, so play ends with the first that fails.
func (c command) play(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		code, stdout, stderr := c.run(t, strings.Fields(s.line)...)
		if code != s.code || !says(s.stdout, stdout) || !says(s.stderr, stderr) {
			t.Fatalf("`leasekeeper %s` ended with %d, and said\n%s%s\nwant %d and %q, %q", s.line, code, stdout, stderr, s.code, s.stdout, s.stderr)
		}
	}
}

func says(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	return regexp.MustCompile(pattern).MatchString(text)
}

// The command does with names on MongoDB what it does in other databases.
func TestCommandOnFerretDB(t *testing.T) { testCommand(t, Start(t).URI(), false) }
func TestCommandOnMongoDB(t *testing.T)  { testCommand(t, mongod(t), true) }

// testCommand runs the command, and holders that are stopped, on a server. gates says whether the server has
// transactions, and so gates.
func testCommand(t *testing.T, uri string, gates bool) {
	c := build(t, uri)
	t.Run("leases", func(t *testing.T) { c.at("leases").play(t, leaseSteps) })
	t.Run("records", func(t *testing.T) { c.at("records").play(t, recordSteps) })
	t.Run("move", func(t *testing.T) { c.at("moved").movesAndBack(t) })
	t.Run("killed", func(t *testing.T) { c.at("killed").isTakenOver(t) })
	t.Run("accident", func(t *testing.T) { c.at("accident").playAccident(t, uri, gates) })
}

var leaseSteps = []step{
	{"ls --store STORE", 0, `^NAME  HOLDER  TOKEN  REMAINING  WAITING\n$`, ``},
	{"acquire --store STORE jobs/x --ttl 60s --holder me --card text", 0, `^1\n$`, ``},
	{"acquire --store STORE jobs/x -n", 1, ``, `^leasekeeper: jobs/x is held by me \(pid \d+ on .*\) \(token 1\), for up to \S+ unless renewed\n$`},
	{"run --store STORE -n -E 7 --quiet-if-busy jobs/x -- echo no", 7, ``, ``},
	{"renew --store STORE jobs/x 1", 0, `^jobs/x is held for (1m0s|5\d(\.\d+)?s) from now\n$`, ``},
	{"renew --store STORE jobs/x 2", 1, ``, `token 2 was never issued`},
	{"ls --store STORE", 0, `\njobs/x +me \(pid \d+ on .*\) +1 +(1m0s|5\d(\.\d+)?s) +unknown\n$`, ``},
	{"show --store STORE jobs/x", 0, `(?s)card +text\n.*ttl +1m0s\n`, ``},
	{"token check --store STORE jobs/x 1", 0, `.`, ``},
	{"transfer --store STORE jobs/x", 4, ``, `^leasekeeper: could not transfer jobs/x: transfer is not supported by the backend mongodb: a database cannot make the next waiter the holder in one step; choose a waiter with --to, or release the name\n$`},
	{"pin --store STORE jobs/x --reason maintenance", 0, `^jobs/x is pinned\n$`, ``},
	{"show --store STORE jobs/x", 0, `pinned +maintenance\n`, ``},
	{"revoke --store STORE jobs/x --reason test --now", 1, ``, `pinned`},
	{"release --store STORE jobs/x 1", 0, `^jobs/x is free\n$`, ``},
	{"unpin --store STORE jobs/x", 0, `^jobs/x is no longer pinned\n$`, ``},
	{"run --store STORE -n jobs/x -- printenv LEASEKEEPER_TOKEN", 0, `^3\n$`, ``},
	{"acquire --store STORE jobs/x --ttl 60s --holder next", 0, `^5\n$`, ``},
	{"revoke --store STORE jobs/x --reason test", 0, `^jobs/x can no longer be renewed`, ``},
	{"renew --store STORE jobs/x 5", 1, ``, `.`},
	{"revoke --store STORE jobs/x --reason test --now", 0, `.`, ``},
	{"release --store STORE jobs/x 5", 1, ``, `^leasekeeper: nobody holds jobs/x: the lease with token 5 has ended\n$`},
	{"history --store STORE jobs/x", 0, `(?s)\n5 +next .* revoked: test\n.*\n1 +me .* released`, ``},
}

var recordSteps = []step{
	{"floor show --store STORE", 0, `^floor +0\nhighest token +0\n$`, ``},
	{"run --store STORE builds/1 -- true", 0, ``, ``},
	{"run --store STORE builds/2 -- true", 0, ``, ``},
	{"acquire --store STORE builds/3 --ttl 60s --holder me", 0, `^\d+\n$`, ``},
	{"collect --store STORE builds/", 0, `^0 records were removed\n$`, ``},
	{"collect --store STORE builds/ --older-than 0s", 0, `^2 records were removed\n$`, ``},
	{"show --store STORE builds/3", 0, `holder +me`, ``},
	{"run --store STORE builds/1 -- printenv LEASEKEEPER_TOKEN", 0, `^[2-9]\n$`, ``},
	{"floor raise --store STORE 1000", 0, `^the floor is 1000: all later tokens are above it\n$`, ``},
	{"run --store STORE builds/1 -- printenv LEASEKEEPER_TOKEN", 0, `^1001\n$`, ``},
	{"floor raise --store STORE 5", 0, `^the floor is 1000:`, ``},
	{"floor show --store STORE -o json", 0, `"floor": 1000,\s+"highest_token": 1002\s`, ``},
	{"schema mongodb", 2, ``, `^leasekeeper: there is no schema for "mongodb": write postgres or sqlite; other stores need none\n$`},
}

// movesAndBack moves names to a file and back, with tokens that keep growing.
func (c command) movesAndBack(t *testing.T) {
	file := "sqlite:" + filepath.ToSlash(filepath.Join(t.TempDir(), "leases.db"))
	steps := []step{
		{"run --store STORE jobs/x -- true", 0, ``, ``},
		{"run --store STORE jobs/x -- printenv LEASEKEEPER_TOKEN", 0, `^3\n$`, ``}, // a release takes a token, too
		{"acquire --store STORE jobs/held --ttl 60s --holder me", 0, `^1\n$`, ``},
		{"move --from STORE --to FILE --dry-run", 1, `(?s)^jobs/held stays: .* held by me .*\n1 name would be moved\n$`, ``},
		{"move --from STORE --to FILE", 1, `(?s)^jobs/held stays: .*\n1 name was moved: tokens continue above \d+\n$`, ``},
		{"show --store STORE jobs/held", 0, `holder +me`, ``},
		{"history --store FILE jobs/x", 0, `released`, ``},
		{"floor raise --store FILE 100", 0, `^the floor is 100:`, ``},
		{"run --store FILE jobs/x -- printenv LEASEKEEPER_TOKEN", 0, `^101\n$`, ``},
		{"move --from FILE --to STORE", 0, `^1 name was moved: tokens continue above 10\d\n$`, ``},
		{"run --store STORE jobs/x -- printenv LEASEKEEPER_TOKEN", 0, `^10[2-9]\n$`, ``},
		{"history --store STORE jobs/x", 0, `(?s)\n101 .*\n3 `, ``},
		{"move --from STORE --to STORE&poll=1s", 2, ``, `^leasekeeper: --from and --to are the same store, or another command is moving names back: nothing was moved\n$`},
	}
	for i := range steps {
		steps[i].line = strings.ReplaceAll(steps[i].line, "FILE", file)
	}
	c.play(t, steps)
}

// isTakenOver kills a holder, like a machine that fails. Processes that ask once, each living shorter than the
// TTL, get the name when the TTL has passed, and not before.
func (c command) isTakenOver(t *testing.T) {
	const ttl = 4 * time.Second
	holder := exec.CommandContext(t.Context(), c.path, "run", "--store", c.store, "--ttl", ttl.String(), "lock", "--", "sh", "-c", "echo ready; exec sleep 60")
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}()
	if _, err := out.Read(make([]byte, len("ready"))); err != nil {
		t.Fatalf("the holder does not begin: %v", err)
	}
	attempt := func() bool {
		code, stdout, stderr := c.run(t, "run", "--store", "STORE", "--ttl", ttl.String(), "-n", "-E", "9", "lock", "--", "true")
		if code != 0 && code != 9 {
			t.Fatalf("it ended with %d: %s%s", code, stdout, stderr)
		}
		return code == 0
	}
	if attempt() {
		t.Fatal("it was taken from who holds it")
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	// The last renewal was at most a little more than a third of the TTL before.
	for never, must := killed.Add(ttl/2), killed.Add(ttl); ; time.Sleep(50 * time.Millisecond) {
		began := time.Now()
		got := attempt()
		switch {
		case got && time.Now().Before(never):
			t.Fatalf("it was taken %v after the death", time.Since(killed))
		case got:
			t.Logf("taken %v after the death", time.Since(killed).Round(time.Millisecond))
			return
		case began.After(must):
			t.Fatalf("refused to one who began %v after the end", began.Sub(must))
		}
	}
}
