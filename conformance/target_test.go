package conformance

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/process"
)

const (
	// startLimit bounds how long a target may take to become ready, and
	// stopLimit how long it may take to go after it was asked.
	startLimit = 30 * time.Second
	stopLimit  = 20 * time.Second

	// waitLimit bounds every wait for something that is due at once.
	waitLimit = 20 * time.Second
)

// server is one running target. Its methods fail the test they belong to.
type server struct {
	t      *testing.T
	target string
	dir    string
	logs   string // path; all lives of the process append to it

	grpcAddr string
	httpAddr string
	peerAddr string

	// The name of a cluster's member, and its cluster. endpoints are the addresses for clients, if they are more than this
	// member's.
	name      string
	cluster   *cluster
	endpoints []string

	// joins is set for a member that joins a cluster which exists.
	joins bool

	program string // path; "" means the program of this commit
	etcdctl string // path; "" means etcdctl of the version that go.mod names
	// ctlFlags are flags of etcdctl, besides --endpoints.
	ctlFlags []string
	flags    []string // of serve, besides the usual ones
	// certificates make the server speak TLS with clients; nil means that it does not.
	certificates *certificates
	process      *process.Process // nil while stopped
}

// ours says whether it is our server, in whatever form.
func (s *server) ours() bool { return s.target != etcd }

// binary is the program.
func (s *server) binary() string {
	if s.program != "" {
		return s.program
	}
	if s.ours() {
		return binaries.server[leasekeeper]
	}
	return binaries.server[etcd]
}

// addresses returns the endpoints for clients, separated by commas.
func (s *server) addresses() string {
	if s.endpoints == nil {
		return s.grpcAddr
	}
	return strings.Join(s.endpoints, ",")
}

// eachTarget runs one test against every target, each time on a fresh server.
// The tests run in parallel, because many of them mostly wait for a lease to end.
func eachTarget(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	onTargets(t, targets(), test)
}

// eachServer is eachTarget for what a server reports about itself, which differs in a cluster. It runs the test where the
// server is alone. members_test.go has the tests for clusters.
func eachServer(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	onTargets(t, chosen(etcd, leasekeeper), test)
}

func onTargets(t *testing.T, names []string, test func(t *testing.T, s *server)) {
	t.Parallel()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, startServer(t, name))
		})
	}
}

// startServer starts a target on an empty directory and free ports, and stops it
// at the end of the test.
func startServer(t *testing.T, target string) *server {
	t.Helper()
	return startTargetWith(t, target, func(*server) {})
}

// startTargetWith is startServer for servers with settings. Each member of a cluster gets them.
func startTargetWith(t *testing.T, target string, configure func(*server)) *server {
	t.Helper()
	switch target {
	case follower:
		return startClusterWith(t, leasekeeper, configure).follower()
	case everyone:
		return startClusterWith(t, leasekeeper, configure).everyone()
	}
	return startServerWith(t, target, configure)
}

// startServerWith is startServer for a server that is alone and has settings.
func startServerWith(t *testing.T, target string, configure func(*server)) *server {
	t.Helper()
	s := newServer(t, target)
	configure(s)
	// Another process may take the port between its choice and its use.
	for attempt := 1; ; attempt++ {
		s.grpcAddr, s.httpAddr, s.peerAddr = freeAddr(t), freeAddr(t), freeAddr(t)
		if s.target == etcd {
			s.httpAddr = s.grpcAddr
		}
		err := s.run()
		if err == nil {
			return s
		}
		if attempt == 3 {
			t.Fatalf("starting %s: %v", target, err)
		}
		os.RemoveAll(s.dir)
	}
}

// newServer is a server that was not started yet. It ends with the test.
func newServer(t *testing.T, target string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, target: target, dir: filepath.Join(dir, "data"), logs: filepath.Join(dir, "log")}
	t.Cleanup(func() {
		s.kill()
		s.showLogs()
	})
	return s
}

// start starts a stopped server again, on the same directory and ports.
func (s *server) start() {
	s.t.Helper()
	if err := s.run(); err != nil {
		s.t.Fatalf("starting %s again: %v", s.target, err)
	}
}

// run starts the process and returns once it is ready.
func (s *server) run() error {
	if err := s.launch(); err != nil {
		return err
	}
	if err := s.awaitReady(); err != nil {
		s.kill()
		return err
	}
	return nil
}

// launch starts the process.
func (s *server) launch() (err error) {
	s.process, err = process.Start(s.logs, s.binary(), s.arguments()...)
	return err
}

func (s *server) arguments() []string {
	if s.certificates != nil {
		return append(s.plainArguments(), s.certificates.flags(s.ours())...)
	}
	return s.plainArguments()
}

// plainArguments are the arguments without those for certificates.
func (s *server) plainArguments() []string {
	if s.ours() {
		arguments := []string{"serve", "--data-dir", s.dir, "--listen", s.grpcAddr, "--http", s.httpAddr}
		arguments = append(arguments, s.flags...)
		if s.cluster != nil {
			arguments = append(arguments, "--name", s.name, "--initial-cluster", s.cluster.list(""), "--peer-listen", s.peerAddr)
		}
		return append(arguments, s.clusterState()...)
	}
	name, list := "one", "one=http://"+s.peerAddr
	if s.cluster != nil {
		name, list = s.name, s.cluster.list("http://")
	}
	client, peer := "http://"+s.grpcAddr, "http://"+s.peerAddr
	if s.certificates != nil {
		client = "https://" + s.grpcAddr
	}
	return append([]string{
		"--name", name, "--data-dir", s.dir, "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", list,
	}, append(s.clusterState(), s.flags...)...)
}

// clusterState are the flags by which a member joins. Both programs have the same.
func (s *server) clusterState() []string {
	if !s.joins {
		return nil
	}
	return []string{"--initial-cluster-state", "existing"}
}

func (s *server) awaitReady() error {
	if s.certificates != nil {
		return s.certificates.ready(s)
	}
	return s.process.AwaitReady("http://"+s.httpAddr+"/readyz", startLimit)
}

// kill ends the process without a chance to tidy up, and waits for it.
func (s *server) kill() {
	if s.process == nil {
		return
	}
	s.process.Kill()
	s.process = nil
}

// stop asks the process to end and fails the test if it does not.
func (s *server) stop() {
	s.t.Helper()
	s.process.Terminate()
	select {
	case <-s.process.Exited():
		s.process = nil
	case <-time.After(stopLimit):
		s.kill()
		s.t.Fatalf("%s did not end within %v of SIGTERM", s.target, stopLimit)
	}
}

// showLogs prints the end of what the target wrote, if the test has failed.
func (s *server) showLogs() {
	if s.t.Failed() {
		process.ShowLog(s.t, s.target, s.logs)
	}
}

// context is cancelled with the test, or when it has taken absurdly long.
func (s *server) context() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	return ctx
}

func httpGet(url string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// freeAddr chooses a loopback address without a listener. The ports below its range are for the tests of cmd/leasekeeper, which
// may run at the same time.
func freeAddr(t *testing.T) string {
	t.Helper()
	return process.Address(t, 28_000, 4_700)
}
