package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/testutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
)

// callLimit bounds one question to a member.
const callLimit = 5 * time.Second

// Member is a member of a cluster.
type Member struct {
	Client        *clientv3.Client // nil if the test has taken it
	ElectionTicks int              // the election timeout, in ticks of 10 ms
	Server        Server
	LogObserver   LogObserver

	cluster *Cluster
	member  *cluster.Member
	bridge  *bridge // nil without UseBridge, or while the member is stopped
	front   string  // the bridge's address
	stopped bool
}

// address returns where clients reach the member.
func (m *Member) address() string {
	if m.front != "" {
		return m.front
	}
	return m.member.Endpoint()
}

// connect makes the bridge and the client.
func (m *Member) connect(t testutil.TB) {
	t.Helper()
	if m.cluster.cfg.UseBridge {
		m.build(t, cluster.Address(full(t)))
	}
	client, err := m.newClient()
	if err != nil {
		t.Fatal(err)
	}
	m.Client = client
}

func (m *Member) build(t testutil.TB, address string) {
	t.Helper()
	b, err := newBridge(address, m.member.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	m.bridge, m.front = b, b.address()
}

func (m *Member) disconnect() {
	if m.bridge != nil {
		m.bridge.Close()
		m.bridge = nil
	}
}

// newClient returns a client of this member, or of all if their leader is killed.
func (m *Member) newClient() (*clientv3.Client, error) {
	endpoints := []string{m.address()}
	if faultsFile() != "" {
		endpoints = m.cluster.Endpoints()
	}
	return NewClient(nil, clientv3.Config{
		Endpoints: endpoints, DialTimeout: dialLimit, MaxCallRecvMsgSize: m.cluster.cfg.ClientMaxCallRecvMsgSize,
	})
}

// Bridge returns what is between clients and the member.
func (m *Member) Bridge() *bridge { return m.bridge }

// Stop kills the member.
func (m *Member) Stop(t testutil.TB) {
	if m.cluster.faults != nil {
		t.Fatal("a test that stops a member needs a cluster whose leader is not killed")
	}
	m.stopped = true
	m.disconnect()
	m.cluster.members.Kill(m.member)
}

// Restart starts a member that was stopped, and returns when it accepts connections.
func (m *Member) Restart(t testutil.TB) error {
	m.cluster.members.Run(m.member)
	m.stopped = false
	if m.front != "" {
		m.build(t, m.front)
	}
	var err error
	for deadline := time.Now().Add(leaderLimit); time.Now().Before(deadline); time.Sleep(tick) {
		var conn net.Conn
		if conn, err = net.Dial("tcp", m.member.Endpoint()); err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("the member accepts no connections within %v: %w", leaderLimit, err)
}

// WaitOK waits until the member answers reads.
func (m *Member) WaitOK(t testutil.TB) { WaitClientV3(t, m.Client) }

// URL returns the member's address for HTTP.
func (m *Member) URL() string { return "http://" + m.member.Endpoint() }

// status asks the member over a connection of its own.
func (m *Member) status() (*clientv3.StatusResponse, error) {
	client, err := NewClient(nil, clientv3.Config{Endpoints: []string{m.member.Endpoint()}})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return client.Status(ctx, m.member.Endpoint())
}

// ours are the metrics of Leasekeeper that say what one of etcd says, and ourLabels the beginnings of their labels.
var (
	ours = map[string]string{
		"etcd_debugging_mvcc_watcher_total": "leasekeeper_watchers",
		"grpc_server_handled_total":         "leasekeeper_grpc_requests_total",
	}
	ourLabels = strings.NewReplacer(`grpc_method="`, `/`, `grpc_code="`, `code="`)
)

// Metric returns the value of the first metric with the name and all labels, or "" if there is none.
func (m *Member) Metric(name string, labels ...string) (string, error) {
	body, err := m.metrics()
	if err != nil {
		return "", err
	}
	absent := ""
	if instead := ours[name]; instead != "" && m.cluster.kind() == cluster.Leasekeeper {
		name, absent = instead, "0" // it shows no counter that has counted nothing
		for i, label := range labels {
			labels[i] = ourLabels.Replace(label)
		}
	}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, name) && hasAll(line, labels) {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), nil
		}
	}
	return absent, nil
}

func (m *Member) metrics() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL()+"/metrics", nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func hasAll(line string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

// errInside says why a test cannot be carried out.
var errInside = errors.New("the member is a process, whose inside tests do not see")

// InjectPartition fails the test.
func (m *Member) InjectPartition(t testing.TB, _ ...*Member) { t.Fatal(errInside) }

// RecoverPartition fails the test.
func (m *Member) RecoverPartition(t testing.TB, _ ...*Member) { t.Fatal(errInside) }

// Server stands for etcd's server object.
type Server struct{}

// MemberID returns 0.
func (Server) MemberID() types.ID { return 0 }

// LogObserver stands for what sees the log of etcd.
type LogObserver struct{}

// Expect returns an error.
func (LogObserver) Expect(context.Context, string, int) ([]string, error) { return nil, errInside }
