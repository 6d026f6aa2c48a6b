package cluster

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/process"
)

// Member is one server of a cluster. Its name and its addresses last as long as the cluster, also over a replacement.
type Member struct {
	cluster *Cluster
	name    string
	dir     string // the data directory
	log     string // the path of the log of all its processes

	client, peer, http string // addresses, host:port

	joins   bool             // it joins a cluster that exists
	process *process.Process // nil while it does not run
}

// Name returns the name of the member, such as "a".
func (m *Member) Name() string { return m.name }

// Endpoint returns the member's address for clients, host:port. It serves gRPC and JSON.
func (m *Member) Endpoint() string { return m.client }

func (m *Member) running() bool { return m.process != nil }

// run starts the process. It does not wait until the member is ready.
func (m *Member) run() (err error) {
	m.process, err = process.Start(m.log, m.cluster.program, m.arguments()...)
	return err
}

func (m *Member) arguments() []string {
	var flags []string
	if m.cluster.kind == Leasekeeper {
		flags = []string{
			"serve", "--name", m.name, "--data-dir", m.dir, "--listen", m.client, "--http", m.http,
			"--peer-listen", m.peer, "--initial-cluster", m.cluster.list(""),
		}
	} else {
		client, peer := m.scheme()+m.client, "http://"+m.peer
		flags = []string{
			"--name", m.name, "--data-dir", m.dir, "--log-level", "warn",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", m.cluster.list("http://"),
		}
	}
	if m.joins {
		flags = append(flags, "--initial-cluster-state", "existing")
	}
	if m.cluster.secrets != nil {
		flags = append(flags, m.cluster.secrets.flags(m.cluster.kind)...)
	}
	return append(flags, m.cluster.flags...)
}

// scheme is that of the member's URLs for clients.
func (m *Member) scheme() string {
	if m.cluster.secrets != nil {
		return "https://"
	}
	return "http://"
}

// awaitReady waits until the member serves.
func (m *Member) awaitReady() error {
	client := http.DefaultClient
	if m.cluster.secrets != nil {
		client = &http.Client{Transport: &http.Transport{TLSClientConfig: m.cluster.secrets.root, DisableKeepAlives: true}}
	}
	if err := m.process.AwaitReadyOver(client, m.scheme()+m.http+"/readyz", waitLimit); err != nil {
		return fmt.Errorf("member %s: %w", m.name, err)
	}
	return nil
}

// kill ends the process without a chance to finish anything, and waits for its end.
func (m *Member) kill() {
	if !m.running() {
		return
	}
	m.process.Kill()
	m.process = nil
}

// Address returns a loopback address, host:port, where nothing listens. Its port is below the range of the module conformance.
func Address(t testing.TB) string {
	t.Helper()
	return process.Address(t, 20_000, 7_900)
}

func newMember(c *Cluster, name, dir string) *Member {
	m := &Member{cluster: c, name: name, dir: filepath.Join(dir, name), log: filepath.Join(dir, name+".log")}
	m.client, m.peer, m.http = Address(c.t), Address(c.t), Address(c.t)
	if c.kind == Etcd {
		m.http = m.client
	}
	return m
}
