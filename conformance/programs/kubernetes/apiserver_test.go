package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
)

const (
	// startLimit bounds the time from the start of an API server to its first answer.
	startLimit = 2 * time.Minute

	// callLimit bounds one request to an API server, except watches.
	callLimit = time.Minute
)

// apiServer is an API server. It may stop and start again, also on another cluster: its address stays.
type apiServer struct {
	t       *testing.T
	name    string
	binary  string // its path
	dir     string // of its files
	address string // host:port
	client  *http.Client
	cmd     *exec.Cmd // nil while it does not run
}

// startAPIServer starts an API server on the store at the endpoints and returns when it serves. It ends with the test.
func startAPIServer(t *testing.T, name, binary string, endpoints []string, flags ...string) *apiServer {
	t.Helper()
	s := &apiServer{
		t: t, name: name, binary: binary, dir: t.TempDir(), address: cluster.Address(t),
		client: &http.Client{
			Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: writers},
		},
	}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			showEnd(t, name, s.log())
		}
	})
	s.start(endpoints, flags...)
	return s
}

// log returns the path of the log of all runs.
func (s *apiServer) log() string { return filepath.Join(s.dir, "log") }

// start starts the API server and returns when it serves.
func (s *apiServer) start(endpoints []string, flags ...string) {
	t := s.t
	t.Helper()
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(s.binary, append([]string{
		"--etcd-servers", "http://" + strings.Join(endpoints, ",http://"),
		"--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", s.dir,
		"--kubeconfig", nowhere(t, s.dir),
		// These ask the API server for the other kinds of objects, which does not run here.
		"--enable-priority-and-fairness=false",
		"--disable-admission-plugins", "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd = cmd
	s.eventually(startLimit, "the API server serves", func() error {
		_, err := s.call(http.MethodGet, "/healthz", nil)
		return err
	})
}

// stop ends the API server if it runs.
func (s *apiServer) stop() {
	s.client.CloseIdleConnections()
	if s.cmd != nil {
		end(s.cmd)
	}
	s.cmd = nil
}

// nowhere returns the path of a kubeconfig of a server that does not exist. The API server wants one.
func nowhere(t *testing.T, dir string) string {
	t.Helper()
	const config = `{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}]}`
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// end asks a process to end, and kills it if it does not.
func end(cmd *exec.Cmd) {
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(10 * time.Second):
		cmd.Process.Kill()
		<-exited
	}
}

func showEnd(t *testing.T, name, path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Log(err)
		return
	}
	t.Logf("log of the API server %s:\n%s", name, data[max(0, len(data)-8<<10):])
}

// status is an answer with a code that says failure.
type status struct {
	code int
	body string
}

func (s *status) Error() string { return fmt.Sprintf("status %d: %.300s", s.code, s.body) }

// isStatus says whether an error is an answer with the code.
func isStatus(err error, code int) bool {
	var s *status
	return errors.As(err, &s) && s.code == code
}

// call makes a request and returns the body of the answer. The error is a *status if the API server has answered.
func (s *apiServer) call(method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), callLimit)
	defer cancel()
	resp, err := s.open(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// open makes a request. The caller closes the body of the answer.
func (s *apiServer) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+s.address+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		return nil, &status{resp.StatusCode, string(data)}
	}
	return resp, nil
}

// eventually tries until there is no error.
func (s *apiServer) eventually(within time.Duration, what string, try func() error) {
	s.t.Helper()
	var err error
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	s.t.Fatalf("%s: %s: not within %v: %v", s.name, what, within, err)
}
