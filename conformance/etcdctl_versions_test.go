package conformance

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// etcdctlVersion is one minor version of etcdctl, built once for all tests.
type etcdctlVersion struct {
	minor int // 7 means 3.7
	build func() (string, error)
}

// etcdctlVersions are those that operators still run. A module of its own pins each of the older ones.
var etcdctlVersions = []etcdctlVersion{
	{4, pinnedEtcdctl("3.4", "go.etcd.io/etcd/etcdctl")},
	{5, pinnedEtcdctl("3.5", "go.etcd.io/etcd/etcdctl/v3")},
	{6, pinnedEtcdctl("3.6", "go.etcd.io/etcd/etcdctl/v3")},
	{7, func() (string, error) { return binaries.etcdctl, nil }},
}

func pinnedEtcdctl(version, pkg string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		return build(filepath.Dir(binaries.etcdctl), filepath.Join("etcdctl", "v"+version), "etcdctl-"+version, pkg)
	})
}

func (v etcdctlVersion) String() string { return fmt.Sprintf("3.%d", v.minor) }

// eachEtcdctl runs a test with every version of etcdctl.
func eachEtcdctl(t *testing.T, test func(t *testing.T, v etcdctlVersion, path string)) {
	t.Parallel()
	for _, v := range etcdctlVersions {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			path, err := v.build()
			wantOK(t, "building etcdctl", err)
			test(t, v, path)
		})
	}
}

// Every command of the table prints the same on a cluster of three of ours as on one of etcd.
func TestEveryEtcdctlPrintsTheSameAsOnEtcd(t *testing.T) {
	if len(chosen(etcd)) == 0 || len(chosen(everyone)) == 0 {
		t.Skip("-target omits one of the two servers that are compared")
	}
	eachEtcdctl(t, func(t *testing.T, v etcdctlVersion, path string) {
		theirs, ours := newCtlScript(t, etcd, v, path), newCtlScript(t, leasekeeper, v, path)
		for _, step := range ctlTable() {
			if !step.isFor(v) {
				continue
			}
			want, got := theirs.run(step), ours.run(step)
			if testing.Verbose() {
				t.Logf("etcdctl %s\n%s", step.line, want)
			}
			if got != want {
				t.Errorf("etcdctl %s\n  ours: %q\n  etcd: %q", step.line, got, want)
			}
		}
	})
}

// A command that etcdctl's help lists is in the table, or in the list of those that say nothing about a server.
func TestEtcdctlTableHasEveryCommandAndFlag(t *testing.T) {
	eachEtcdctl(t, func(t *testing.T, v etcdctlVersion, path string) {
		used := make(map[string]bool)
		for _, step := range slices.Concat(ctlTable(), ctlChecks) {
			if step.isFor(v) {
				used[step.line] = true
			}
		}
		for _, leaf := range etcdctlLeaves(t, path, nil) {
			if _, known := ctlWithoutServer[leaf]; known {
				continue
			}
			lines := linesOf(used, leaf)
			if len(lines) == 0 {
				t.Errorf("the table has no %q", leaf)
			}
			for _, flag := range etcdctlFlags(t, path, leaf) {
				if _, known := ctlFlagsOmitted[leaf+" "+flag]; known {
					continue
				}
				if !slices.ContainsFunc(lines, func(line string) bool { return hasFlag(line, flag) }) {
					t.Errorf("the table has no %s with %s", leaf, flag)
				}
			}
		}
	})
}

var checksFlag = flag.Bool("checks", false, "run etcdctl check too: it needs minutes and an idle machine")

// etcdctl check finds our cluster as fast as it wants a server to be.
func TestEtcdctlChecksPass(t *testing.T) {
	if !*checksFlag || len(chosen(everyone)) == 0 {
		t.Skip("-checks is not given")
	}
	for _, v := range etcdctlVersions { // one after the other: each needs the machine
		path, err := v.build()
		wantOK(t, "building etcdctl", err)
		s := startServer(t, everyone)
		s.etcdctl = path
		for _, step := range ctlChecks {
			cmd := exec.Command(path, s.ctlArguments(strings.Fields(step.line))...)
			cmd.Env = ctlEnvironment()
			out, err := cmd.CombinedOutput()
			t.Logf("etcdctl %v %s\n%s", v, step.line, out)
			wantOK(t, step.line, err)
		}
	}
}

// linesOf returns the lines that run a command.
func linesOf(lines map[string]bool, leaf string) (of []string) {
	for line := range lines {
		if strings.HasPrefix(line+" ", leaf+" ") {
			of = append(of, line)
		}
	}
	return of
}

func hasFlag(line, flag string) bool {
	return slices.ContainsFunc(strings.Fields(line), func(word string) bool { return word == flag || strings.HasPrefix(word, flag+"=") })
}

var (
	helpCommand = regexp.MustCompile(`^\s+([a-z-]+(?: [a-z-]+)?)(?:\t|\s{2,})\S`)
	helpFlag    = regexp.MustCompile(`^\s+(?:-\w, )?(--[a-z-]+)`)
)

// etcdctlLeaves returns the commands below a command that have none below themselves.
func etcdctlLeaves(t *testing.T, path string, above []string) (leaves []string) {
	t.Helper()
	listing := false
	for _, line := range strings.Split(etcdctlHelp(t, path, above...), "\n") {
		if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") && line != "" {
			listing = strings.Contains(strings.ToLower(line), "commands")
		}
		m := helpCommand.FindStringSubmatch(line)
		if m == nil || !listing {
			continue
		}
		command := append(slices.Clone(above), strings.Fields(m[1])...)
		if below := etcdctlLeaves(t, path, command); len(below) > 0 {
			leaves = append(leaves, below...)
		} else {
			leaves = append(leaves, strings.Join(command, " "))
		}
	}
	return leaves
}

// etcdctlFlags returns the flags that a command has besides those of all commands.
func etcdctlFlags(t *testing.T, path, leaf string) (flags []string) {
	t.Helper()
	listing := false
	for _, line := range strings.Split(etcdctlHelp(t, path, strings.Fields(leaf)...), "\n") {
		if line != "" && line[0] != ' ' && line[0] != '\t' {
			listing = line == "OPTIONS:" || line == "Flags:"
		}
		if m := helpFlag.FindStringSubmatch(line); m != nil && listing && m[1] != "--help" {
			flags = append(flags, m[1])
		}
	}
	return flags
}

func etcdctlHelp(t *testing.T, path string, command ...string) string {
	t.Helper()
	cmd := exec.Command(path, append(slices.Clone(command), "--help")...)
	cmd.Env = ctlEnvironment()
	out, err := cmd.Output()
	wantOK(t, fmt.Sprintf("etcdctl %q --help", command), err)
	return string(out)
}

// ctlStep is one line of the table.
type ctlStep struct {
	// line holds the words for etcdctl, with blanks between them; '…' keeps blanks together. {name} stands for what an
	// earlier step kept, or for what the script knows of its cluster.
	line  string
	input string // standard input
	// until is how many lines a command prints before it is interrupted. 0 means that it ends by itself.
	until int
	keep  string // the name under which the first id in the output is kept
	// from and to are the first and the last minor version that have the command; 0 means that there is no limit.
	from, to int
	// mirrored is the key at the mirror with which the command has done its work, so that it is interrupted.
	mirrored string
	while    string // a command that runs meanwhile, and has printed a line before
	// exit means that only the exit status is compared; it gives the reason.
	exit string
	// sorted means that the order of lines and of the parts of a line is that of the members' ids or addresses, which are random.
	sorted bool
}

func (step ctlStep) isFor(v etcdctlVersion) bool {
	return v.minor >= step.from && (step.to == 0 || v.minor <= step.to)
}

// ctlScript runs the table against one cluster.
type ctlScript struct {
	t    *testing.T
	s    *server
	kept map[string]string // by names that lines use
}

func newCtlScript(t *testing.T, target string, v etcdctlVersion, path string) *ctlScript {
	t.Helper()
	g := startCluster(t, target)
	s := g.members[0]
	s.endpoints, s.etcdctl = g.endpoints(), path
	// etcdctl logs in while it connects, 3.4 at each endpoint, and by default gives up after two seconds. Passwords take longer
	// than that on a busy machine.
	s.ctlFlags = []string{"--dial-timeout", "30s"}
	dir := t.TempDir()
	mirror := startServer(t, target)
	c := &ctlScript{t: t, s: s, kept: map[string]string{
		"dir": dir, "mirror": mirror.grpcAddr, "new-peer": freeAddr(t), "other-peer": freeAddr(t),
	}}
	wantOK(t, "an empty file", os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	return c
}

// run runs a step and returns what it printed, without what differs from one cluster to the next.
func (c *ctlScript) run(step ctlStep) string {
	c.t.Helper()
	if step.while != "" {
		meanwhile := c.s.startCtl(c.words(step.while)...)
		meanwhile.line()
		defer func() {
			meanwhile.signal(os.Interrupt)
			<-meanwhile.exited
		}()
	}
	r := c.result(step, c.words(step.line))
	for tries := 0; tries < callTries && strings.Contains(r.stderr, "try again when it is done"); tries++ {
		time.Sleep(againAfter) // a leader that hands over refuses changes of the members, and nothing was changed
		r = c.result(step, c.words(step.line))
	}
	if step.keep != "" {
		if c.kept[step.keep] = anyID.FindString(r.stdout); c.kept[step.keep] == "" {
			c.t.Fatalf("etcdctl %s printed no id: %q %s", step.line, r.stdout, r.stderr)
		}
	}
	if step.exit != "" {
		return fmt.Sprintf("exit %d", r.code)
	}
	out := r.stdout
	if step.sorted {
		out = sortedParts(out)
	}
	return fmt.Sprintf("exit %d\n%s%s", r.code, masked(out), masked(ctlErrors(r.stderr)))
}

func (c *ctlScript) result(step ctlStep, args []string) ctlResult {
	c.t.Helper()
	switch {
	case step.until > 0:
		return c.interrupted(args, func(stream *ctlStream) (out string) {
			for range step.until {
				out += stream.line() + "\n"
			}
			return out
		})
	case step.mirrored != "":
		return c.interrupted(args, func(*ctlStream) string {
			eventually(c.t, waitLimit, "the mirror has "+step.mirrored, func() bool {
				return c.s.mustCtl("get", step.mirrored, "--endpoints", c.kept["mirror"]) != ""
			})
			return ""
		})
	}
	return c.s.ctlWithInput(step.input, args...)
}

// interrupted runs etcdctl until await returns what it has printed.
func (c *ctlScript) interrupted(args []string, await func(stream *ctlStream) string) ctlResult {
	c.t.Helper()
	stream := c.s.startCtl(args...)
	out := await(stream)
	stream.cmd.Process.Signal(os.Interrupt) // it may have ended by itself: the exit status then says so
	<-stream.exited
	code := stream.cmd.ProcessState.ExitCode()
	if status, ok := stream.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return ctlResult{out, stream.stderr.String(), code}
}

// words splits a line and replaces the names in it.
func (c *ctlScript) words(line string) (words []string) {
	c.t.Helper()
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, c.named(part))
			continue
		}
		for _, word := range strings.Fields(part) {
			words = append(words, c.named(word))
		}
	}
	return words
}

var nameInLine = regexp.MustCompile(`\{([a-z-]+)\}`)

func (c *ctlScript) named(word string) string {
	return nameInLine.ReplaceAllStringFunc(word, func(name string) string {
		return c.value(name[1 : len(name)-1])
	})
}

func (c *ctlScript) value(name string) string {
	c.t.Helper()
	id := func(m *server) string {
		st, err := m.status()
		wantOK(c.t, "status", err)
		return strconv.FormatUint(st.Header.MemberId, 16)
	}
	leader := c.s.cluster.leader()
	i := slices.Index(c.s.cluster.members, leader)
	follower := c.s.cluster.members[(i+1)%3]
	switch name {
	case "leader":
		return leader.grpcAddr
	case "follower":
		return follower.grpcAddr
	case "leader-id":
		return id(leader)
	case "follower-id":
		return id(follower)
	case "follower-peer":
		return follower.peerURL()
	}
	value, ok := c.kept[name]
	if !ok {
		c.t.Fatalf("nothing is named %q", name)
	}
	return value
}

// anyID is an id as etcdctl prints it in lines for people.
var anyID = regexp.MustCompile(`\b[0-9a-f]{11,16}\b`)

// masks are what differs from one cluster to the next, or with time, or is a size. What is 0 stays 0, so that a field that
// was not filled is found out.
var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`/tmp/[^\s"]*/`), "DIR/"},
	{regexp.MustCompile(`\b3\.7\.\d+\b`), "3.7.P"},
	{regexp.MustCompile(`(?i)("?(?:raft_?term|raft_?index|raft_?applied_?index|db_?size|db_?size_?in_?use|total_?size)"?\s*:\s*)[1-9]\d*`), "${1}N"},
	{regexp.MustCompile(`(?i)("db_?size_?quota"\s*:\s*)[1-9]\d*`), "${1}QUOTA"}, // each server has a default of its own
	{regexp.MustCompile(`("Header":\{[^}]*"revision":)\d+`), "${1}R"},           // of a watcher's answer: see docs/compatibility.md
	{regexp.MustCompile(`remaining\(\d+s\)`), "remaining(R)"},
	{regexp.MustCompile(`("ttl"\s?:\s?)5\d\d\b`), "${1}R"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms)|\b\d+\.\d+s\b`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)? [kMG]?B\b`), "SIZE"},
	{anyID, "ID"},
	{regexp.MustCompile(`\b\d{12,20}\b`), "ID"},
	{regexp.MustCompile(`[+|─┼│┌┐└┘├┤┬┴-]{2,}`), "--"},
	{regexp.MustCompile(` {2,}`), " "},
}

func masked(out string) string {
	for _, m := range masks {
		out = m.pattern.ReplaceAllString(out, m.with)
	}
	return out
}

// ctlErrors returns what etcdctl says of errors, without the log of its client library.
func ctlErrors(stderr string) string {
	var said []string
	for _, line := range strings.Split(stderr, "\n") {
		if line != "" && !strings.HasPrefix(line, "{") && !bytes.Contains([]byte(line), []byte("retrying of unary invoker failed")) {
			said = append(said, line)
		}
	}
	return strings.Join(said, "\n")
}

var partsOfLine = regexp.MustCompile(`[",\[\]{}]`)

// sortedParts returns the parts of the output in an order that does not depend on ids.
func sortedParts(out string) string {
	parts := strings.Split(partsOfLine.ReplaceAllString(masked(out), "\n"), "\n")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	sort.Strings(parts)
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "\n")
}
