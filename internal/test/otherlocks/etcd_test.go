//go:build unix

package otherlocks

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

const etcdPage = "etcd-concurrency.md"

// etcdServer is a server of etcd's API: etcd, or ours.
type etcdServer struct {
	name    string
	folder  string // of the module that its program is built in
	program string // its package
	// flags returns the arguments for a data directory, the address of clients and another address.
	flags func(dir, client, other string) []string
}

var etcdServers = []etcdServer{
	{"etcd", "../../../conformance", "go.etcd.io/etcd/server/v3", func(dir, client, other string) []string {
		return []string{"--name", "one", "--data-dir", dir, "--log-level", "error", "--initial-cluster", "one=http://" + other,
			"--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
			"--listen-peer-urls", "http://" + other, "--initial-advertise-peer-urls", "http://" + other}
	}},
	{"leasekeeper", "../../..", "./cmd/leasekeeper", func(dir, client, other string) []string {
		return []string{"serve", "--data-dir", dir, "--listen", client, "--http", other, "--log-level", "error"}
	}},
}

// builtServers has the paths of the servers that were built, by name.
var builtServers = map[string]string{}

// start builds and starts the server, and returns its address when it answers.
func (s etcdServer) start(t *testing.T) string {
	t.Helper()
	if builtServers[s.name] == "" {
		path := filepath.Join(builtDir, s.name)
		cmd := exec.Command("go", "build", "-o", path, s.program)
		cmd.Dir, cmd.Env = s.folder, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", s.name, err, out)
		}
		builtServers[s.name] = path
	}
	client := freeAddress(t)
	cmd := exec.Command(builtServers[s.name], s.flags(filepath.Join(t.TempDir(), "data"), client, freeAddress(t))...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // nothing is kept
		_ = cmd.Wait()
	})
	etcdClient(t, client) // waits until the server answers
	return client
}

// freeAddress returns an address at which no process listened a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// etcdClient returns a client when the server answers.
func etcdClient(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Context: t.Context(), DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		switch _, err := c.Get(ctx, "ready"); {
		case err == nil:
			return c
		case ctx.Err() != nil:
			t.Fatalf("%s does not answer: %v", address, err)
		}
	}
}

// onEtcdServers runs a test on a new server of each kind, with both programs of the page.
func onEtcdServers(t *testing.T, test func(t *testing.T, address, old, fresh string)) {
	built := buildPage(t, etcdPage, 2)
	for _, s := range etcdServers {
		t.Run(s.name, func(t *testing.T) { test(t, s.start(t), built[0], built[1]) })
	}
}

// A program with etcd's own mutex and one with a lease exclude each other on the same key, so the change needs no program
// in between.
func TestProgramsOfTheChangeFromEtcdsMutexNeverMeet(t *testing.T) {
	onEtcdServers(t, func(t *testing.T, address, old, fresh string) {
		// There is no program in between: the new one takes its place.
		move{old: old, both: fresh, fresh: fresh, env: []string{"ETCD_ENDPOINTS=" + address}}.neverMeets(t)
		left, err := etcdClient(t, address).Get(t.Context(), "/locks/", clientv3.WithPrefix())
		if err != nil || len(left.Kvs) != 0 {
			t.Errorf("left over: %v, %v", left, err)
		}
	})
}

// An election of etcd and the program of the page exclude each other. The value of its key is a card, and no proclaimed
// text.
func TestElectionAndTheProgramOfThePageExcludeEachOther(t *testing.T) {
	onEtcdServers(t, func(t *testing.T, address, _, fresh string) {
		session, err := concurrency.NewSession(etcdClient(t, address))
		if err != nil {
			t.Fatal(err)
		}
		fleet, env := pageprogram.NewFleet(t), "ETCD_ENDPOINTS="+address
		e := concurrency.NewElection(session, "/locks/nightly-backup")
		if err := e.Campaign(t.Context(), "mine"); err != nil {
			t.Fatal(err)
		}
		fleet.Start("the second", fresh, env).Refused(0, busy)
		if err := e.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := fleet.Start("the next", fresh, env)
		next.Works()
		leader, err := e.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if value := string(leader.Kvs[0].Value); !strings.HasPrefix(value, "{") || !strings.Contains(value, `"pid"`) {
			t.Errorf("the value of the leader's key is %s", value)
		}
		next.Finish()
	})
}

func TestMutexDoesNotNoticeThatItsKeyWasDeleted(t *testing.T) {
	onEtcdServers(t, func(t *testing.T, address, old, _ string) {
		fleet, env := pageprogram.NewFleet(t), "ETCD_ENDPOINTS="+address
		one := fleet.Start("the holder", old, env)
		one.Works()
		if _, err := etcdClient(t, address).Delete(t.Context(), "/locks/nightly-backup/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		fleet.Start("the second", old, env).Overlaps()
		one.Finish()
	})
}
