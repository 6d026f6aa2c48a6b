package steps

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/process"
)

// limit bounds each command, and each wait for a server.
const limit = 2 * time.Minute

// size is the number of members after Grow.
const size = 3

// Move is a move from etcd, by the commands of docs/operations.md: Save, Import, Serve and Grow, in this order. Make one with
// [NewMove]. It belongs to the goroutine of its test. Its methods fail the test.
type Move struct {
	t       testing.TB
	dir     string // the directory in which the commands run
	program string // the path of the server
	etcd    string // the address of a member of etcd
	moving  Section
	growing Section
	members [size]*member
}

// member is a server of ours.
type member struct {
	name                     string
	client, peer, http, data string
	process                  *process.Process // nil while it does not run
}

// NewMove reads the page, whose path is relative to the directory of the test. Clients reach the first member at the address,
// which may be that of etcd.
func NewMove(t testing.TB, page, etcd, client string) *Move {
	t.Helper()
	m := &Move{
		t: t, dir: t.TempDir(), program: cluster.Program(t, cluster.Leasekeeper), etcd: etcd,
		moving: Read(t, page, "Moving from etcd"), growing: Read(t, page, "Growing from one to three"),
	}
	for i := range m.members {
		m.members[i] = &member{
			name: string(rune('a' + i)), client: cluster.Address(t), peer: cluster.Address(t), http: cluster.Address(t),
			data: filepath.Join(m.dir, fmt.Sprint("data", i+1)),
		}
	}
	m.members[0].client = client
	for name, path := range map[string]string{"etcdctl": cluster.Build(t, "..", "go.etcd.io/etcd/etcdctl/v3"), "leasekeeper": m.program} {
		if err := os.Symlink(path, filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// Run runs a line of a shell, and returns what it prints to its standard output. The default endpoint of etcdctl is etcd's
// before Serve, and then that of the first member.
func (m *Move) Run(line string) string {
	m.t.Helper()
	cmd := m.command(line)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s%s", line, err, out, stderr.String())
	}
	return string(out)
}

func (m *Move) command(line string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	m.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", line)
	cmd.Dir = m.dir
	endpoint := m.etcd
	if m.members[0].process != nil {
		endpoint = m.members[0].client
	}
	cmd.Env = append(os.Environ(), "PATH="+m.dir+":"+os.Getenv("PATH"), "ETCDCTL_ENDPOINTS="+endpoint)
	return cmd
}

// Save saves a snapshot of etcd. The caller then stops etcd.
func (m *Move) Save() {
	m.t.Helper()
	m.Run(m.moving.Command("etcdctl snapshot save "))
}

// Import makes the data directory of the first member.
func (m *Move) Import() {
	m.t.Helper()
	m.t.Log(m.Run(strings.ReplaceAll(m.moving.Command("leasekeeper import "), "DIRECTORY", m.members[0].data)))
}

// Serve starts a server that is alone with the directory.
func (m *Move) Serve() {
	m.t.Helper()
	first := m.members[0]
	m.start(first, "leasekeeper serve --data-dir "+first.data+" --listen "+first.client)
	m.await(first)
}

// Grow restarts the server with an address for other members, and adds two.
func (m *Move) Grow() {
	m.t.Helper()
	first, second, third := m.members[0], m.members[1], m.members[2]
	first.process.Terminate()
	select {
	case <-first.process.Exited():
	case <-time.After(limit):
		m.t.Fatalf("the server has not ended within %v", limit)
	}
	m.start(first, m.here(m.growing.Block("# on host1,"), first))
	m.await(first)

	shown := Commands(m.growing.Block("$ leasekeeper member add b "))
	if len(shown) != 1 {
		m.t.Fatalf("the block has %d commands", len(shown))
	}
	start, promoted := m.growing.Block("# on host2\n"), m.growing.Command("b has caught up ")
	m.add(second, shown[0], start, promoted)
	other := strings.NewReplacer(
		"--name b", "--name c", "add b", "add c", "b was added", "c was added", "b has", "c has", "host2", "host3",
		"--join host1:2380", m.growing.Command("--join host1:2380,host2:2380"))
	m.add(third, Shown{other.Replace(shown[0].Line), other.Replace(shown[0].Output)}, other.Replace(start), other.Replace(promoted))
}

var (
	memberID = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
	joined   = regexp.MustCompile(`--join \S+`)
)

// plain replaces the id of a member, which is random, and puts the addresses to join in order: they are in that of the ids.
func plain(line string) string {
	line = joined.ReplaceAllStringFunc(memberID.ReplaceAllString(line, "ID"), func(list string) string {
		addresses := strings.Split(strings.TrimPrefix(list, "--join "), ",")
		slices.Sort(addresses)
		return "--join " + strings.Join(addresses, ",")
	})
	return strings.TrimSuffix(line, "\n")
}

// add adds a member: a command adds it and prints how to start it, another one starts it, and the first one ends when the
// member has a vote.
func (m *Move) add(added *member, shown Shown, start, promoted string) {
	m.t.Helper()
	cmd := m.command(m.here(shown.Line, added))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for want := range strings.Lines(m.here(shown.Output, added)) {
		lines.Scan()
		if got := plain(lines.Text()); got != plain(want) {
			m.t.Errorf("%s prints %q, want %q", shown.Line, got, want)
		}
	}
	m.start(added, m.here(start, added))
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if err := cmd.Wait(); err != nil || last != promoted {
		m.t.Fatalf("%s ends with %q, want %q: %v\n%s", shown.Line, last, promoted, err, stderr.String())
	}
	m.await(added)
}

// here replaces the hosts of the page, and the ports and the directory of the member that runs a command.
func (m *Move) here(line string, runs *member) string {
	hosts := []string{"0.0.0.0:2380", runs.peer, "0.0.0.0:2379", runs.client, "/var/lib/leasekeeper", runs.data}
	for i, member := range m.members {
		host := fmt.Sprint("host", i+1)
		hosts = append(hosts, host+":2380", member.peer, host+":2379", member.client)
	}
	return strings.NewReplacer(hosts...).Replace(line)
}

// start starts a server by a command of one line, or of several that end with a backslash. Lines with a comment may stand before
// it. The server ends with the test.
func (m *Move) start(started *member, command string) {
	m.t.Helper()
	command = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(command, "")
	words := strings.Fields(strings.ReplaceAll(command, "\\\n", " "))
	if len(words) < 2 || words[0] != "leasekeeper" || words[1] != "serve" {
		m.t.Fatalf("this command starts no server: %s", command)
	}
	log := filepath.Join(m.dir, "log-"+started.name)
	p, err := process.Start(log, m.program, append(words[1:], "--http", started.http)...)
	if err != nil {
		m.t.Fatal(err)
	}
	started.process = p
	m.t.Cleanup(func() {
		p.Kill()
		if m.t.Failed() {
			process.ShowLog(m.t, "member "+started.name, log)
		}
	})
}

// await waits until a server is ready.
func (m *Move) await(started *member) {
	m.t.Helper()
	if err := started.process.AwaitReady("http://"+started.http+"/readyz", limit); err != nil {
		m.t.Fatal(err)
	}
}

// Endpoints returns the addresses of the members for clients, each as host:port.
func (m *Move) Endpoints() []string {
	var all []string
	for _, member := range m.members {
		all = append(all, member.client)
	}
	return all
}

// KillFirst kills the member that began alone.
func (m *Move) KillFirst() { m.members[0].process.Kill() }
