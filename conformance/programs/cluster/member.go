package cluster

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Member is one server of a cluster. Its name and its addresses last as long as the cluster, also over a replacement.
type Member struct {
	cluster *Cluster
	name    string
	dir     string // the data directory
	log     string // the path of the log of all its processes

	client, peer, http string // addresses, host:port

	joins   bool     // it joins a cluster that exists
	process *process // nil while it does not run
}

// process is one run of a member's server. exited is closed when it has ended and was waited for.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid after exited
}

// Name returns the name of the member, such as "a".
func (m *Member) Name() string { return m.name }

// Endpoint returns the member's address for clients, host:port. It serves gRPC and JSON.
func (m *Member) Endpoint() string { return m.client }

func (m *Member) running() bool { return m.process != nil }

// run starts the process. It does not wait until the member is ready.
func (m *Member) run() error {
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.cluster.program, m.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	m.process = p
	return nil
}

func (m *Member) arguments() []string {
	var flags []string
	if m.cluster.kind == Leasekeeper {
		flags = []string{
			"serve", "--name", m.name, "--data-dir", m.dir, "--listen", m.client, "--http", m.http,
			"--peer-listen", m.peer, "--initial-cluster", m.cluster.list(""),
		}
	} else {
		client, peer := "http://"+m.client, "http://"+m.peer
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
	return append(flags, m.cluster.flags...)
}

// awaitReady waits until the member serves.
func (m *Member) awaitReady() error {
	url := "http://" + m.http + "/readyz"
	var last error
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-m.process.exited:
			return fmt.Errorf("member %s ended before it was ready: %v", m.name, m.process.err)
		default:
		}
		code, err := statusOf(url)
		if err == nil && code == http.StatusOK {
			return nil
		}
		last = fmt.Errorf("member %s: %s: status %d, %v", m.name, url, code, err)
	}
	return fmt.Errorf("not ready within %v: %w", waitLimit, last)
}

func statusOf(url string) (int, error) {
	client := http.Client{Timeout: callLimit}
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// kill ends the process without a chance to finish anything, and waits for its end.
func (m *Member) kill() {
	if !m.running() {
		return
	}
	m.process.cmd.Process.Kill()
	<-m.process.exited
	m.process = nil
}

// showLog prints the end of the member's log, and the first panic in it.
func (m *Member) showLog(t testing.TB) {
	data, err := os.ReadFile(m.log)
	if err != nil {
		t.Logf("no log of member %s: %v", m.name, err)
		return
	}
	const most = 8 << 10
	if i := bytes.Index(data, []byte("\npanic: ")); i >= 0 {
		t.Logf("member %s has panicked:%s", m.name, data[i:min(len(data), i+most)])
	}
	if len(data) > most {
		data = append([]byte("[...]"), data[len(data)-most:]...)
	}
	t.Logf("log of member %s of %s:\n%s", m.name, m.cluster.kind, data)
}

var nextPort atomic.Int64

// Address returns a loopback address, host:port, where nothing listens. Its port is below the range from which the
// system takes ports for outgoing connections, and below the range of the module conformance.
func Address(t testing.TB) string {
	t.Helper()
	const low, span = 20_000, 7_900
	offset := int64(os.Getpid()) * 97
	for range span {
		port := low + (offset+nextPort.Add(1))%span
		addr := net.JoinHostPort("127.0.0.1", strconv.FormatInt(port, 10))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

func newMember(c *Cluster, name, dir string) *Member {
	m := &Member{cluster: c, name: name, dir: filepath.Join(dir, name), log: filepath.Join(dir, name+".log")}
	m.client, m.peer, m.http = Address(c.t), Address(c.t), Address(c.t)
	if c.kind == Etcd {
		m.http = m.client
	}
	return m
}
