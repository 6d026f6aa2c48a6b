package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/process"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

const (
	// movePage is the page with the steps.
	movePage = "../../../docs/how-to/kubernetes.md"

	// stepLimit bounds one command.
	stepLimit = 2 * time.Minute
)

// move is a move from etcd, by the commands of the page.
type move struct {
	t        *testing.T
	dir      string
	etcdctl  string     // the path of the program
	program  string     // the path of the server
	commands [][]string // of the page: save, import, serve; with addresses and paths of the test
	members  []*target
}

// target is a member of the cluster to which the objects move.
type target struct {
	client, peer, http string // addresses, host:port
	process            *process.Process
}

// newMove reads the page. Etcd is the address of a member of etcd.
func newMove(t *testing.T, etcd string) *move {
	t.Helper()
	m := &move{
		t: t, dir: t.TempDir(),
		etcdctl: cluster.Build(t, "..", "go.etcd.io/etcd/etcdctl/v3"), program: cluster.Program(t, cluster.Leasekeeper),
	}
	for range 3 {
		m.members = append(m.members, &target{client: cluster.Address(t), peer: cluster.Address(t), http: cluster.Address(t)})
	}
	text, err := os.ReadFile(movePage)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Move from etcd\n")
	here := strings.NewReplacer("\\\n", " ",
		"10.0.0.9:2379", etcd, "10.0.0.1:2379", m.members[0].client, "10.0.0.1:2380", m.members[0].peer,
		"/var/lib/leasekeeper", m.data(0), "etcd.snapshot", filepath.Join(m.dir, "etcd.snapshot"))
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		m.commands = append(m.commands, strings.Fields(here.Replace(block[1])))
	}
	for i, name := range []string{"etcdctl", "leasekeeper", "leasekeeper"} {
		if len(m.commands) != 3 || m.commands[i][0] != name {
			t.Fatalf("the section has other commands: %q", m.commands)
		}
	}
	return m
}

// data returns the path of a member's data directory.
func (m *move) data(i int) string { return filepath.Join(m.dir, fmt.Sprint("data", i)) }

// run runs a program to its end and returns what it prints.
func (m *move) run(program string, arguments ...string) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), stepLimit)
	defer cancel()
	out, err := suite.Output(exec.CommandContext(ctx, program, arguments...))
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// save saves a snapshot of etcd.
func (m *move) save() {
	m.t.Helper()
	m.run(m.etcdctl, m.commands[0][1:]...)
}

// importAndServe makes the data directory of the first member and starts that.
func (m *move) importAndServe() {
	m.t.Helper()
	m.t.Log(m.run(m.program, m.commands[1][1:]...))
	m.start(0, m.commands[2][1:])
	if err := m.members[0].process.AwaitReady("http://"+m.members[0].http+"/readyz", stepLimit); err != nil {
		m.t.Fatal(err)
	}
}

// start starts a member. It ends with the test.
func (m *move) start(i int, arguments []string) {
	t := m.t
	t.Helper()
	log := filepath.Join(m.dir, fmt.Sprint("log", i))
	p, err := process.Start(log, m.program, append(arguments, "--http", m.members[i].http)...)
	if err != nil {
		t.Fatal(err)
	}
	m.members[i].process = p
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			process.ShowLog(t, fmt.Sprint("member ", i+1), log)
		}
	})
}

// grow adds two members, each by the command that "leasekeeper member add" prints.
func (m *move) grow() {
	m.t.Helper()
	for i, name := range []string{"b", "c"} {
		if err := m.add(i+1, name); err != nil {
			m.t.Fatalf("adding member %s: %v", name, err)
		}
	}
}

// add adds a member and waits until it has a vote.
func (m *move) add(i int, name string) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), stepLimit)
	defer cancel()
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, m.program, "member", "add", name, "--peer", m.members[i].peer, "--endpoint", m.members[0].client, "-o", "json")
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	printed := json.NewDecoder(stdout)
	var added, promoted struct {
		Change string
		Start  []string
	}
	err = printed.Decode(&added)
	if err == nil && len(added.Start) > 0 {
		m.start(i, append(added.Start[1:], "--data-dir", m.data(i), "--listen", m.members[i].client, "--watch-progress-notify-interval", "5s"))
		err = printed.Decode(&promoted)
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	if promoted.Change != "promoted" {
		return fmt.Errorf("printed %+v and %+v", added, promoted)
	}
	return nil
}

// endpoints returns the addresses of the members for clients.
func (m *move) endpoints() []string {
	var all []string
	for _, member := range m.members {
		all = append(all, member.client)
	}
	return all
}

// record is a key with its value and its lease; 0: none.
type record struct {
	Value    []byte
	Lease    int64
	Revision int64 `json:"mod_revision"`
}

// record reads a key. It returns nil if there is none.
func (m *move) record(endpoint, key string) *record {
	m.t.Helper()
	var answer struct{ Kvs []record }
	if err := json.Unmarshal([]byte(m.run(m.etcdctl, "--endpoints", endpoint, "get", key, "-w", "json")), &answer); err != nil {
		m.t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return nil
	}
	return &answer.Kvs[0]
}

// wantRecord returns a record, which must have a lease.
func (m *move) wantRecord(endpoint, key string) *record {
	m.t.Helper()
	found := m.record(endpoint, key)
	if found == nil || found.Lease == 0 {
		m.t.Fatalf("%s is %+v, want a lease", key, found)
	}
	return found
}

// putEvent writes a key to etcd as an API server does for an event, and returns its lease.
func (m *move) putEvent(etcd string) (lease string) {
	m.t.Helper()
	var granted struct{ ID int64 }
	if err := json.Unmarshal([]byte(m.run(m.etcdctl, "--endpoints", etcd, "lease", "grant", fmt.Sprint(eventTTL), "-w", "json")), &granted); err != nil {
		m.t.Fatal(err)
	}
	lease = fmt.Sprintf("%x", granted.ID)
	m.run(m.etcdctl, "--endpoints", etcd, "put", eventKey, "started", "--lease", lease)
	return lease
}

// wantLeases fails the test unless the record of the API server that did not start again ends, and the record of the other
// one, which had this record before the move, does not. The event must have its lease of before the move.
func (m *move) wantLeases(stayed *record, lease string) {
	t := m.t
	t.Helper()
	endpoint := m.members[0].client
	m.eventually("the record of the API server that did not start again ends", func() bool {
		return m.record(endpoint, records+"goes") == nil
	})
	m.eventually("the lease of the other one's former record ends", func() bool {
		return strings.Contains(m.run(m.etcdctl, "--endpoints", endpoint, "lease", "timetolive", fmt.Sprintf("%x", stayed.Lease)), "already expired")
	})
	if now := m.record(endpoint, records+"stays"); now == nil || now.Lease == stayed.Lease || now.Revision <= stayed.Revision {
		t.Errorf("the record of the API server that started again is %+v, and was %+v before the move", now, stayed)
	}
	found := m.run(m.etcdctl, "--endpoints", endpoint, "lease", "timetolive", lease, "--keys")
	if !strings.Contains(found, fmt.Sprintf("granted with TTL(%ds)", eventTTL)) || !strings.Contains(found, eventKey) {
		t.Errorf("the lease of the event: %s", found)
	}
}

// eventually waits until something holds.
func (m *move) eventually(what string, holds func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(stepLimit); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("%s: not within %v", what, stepLimit)
		}
	}
}
