package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// ctlResult is what one run of etcdctl came to.
type ctlResult struct {
	stdout string
	stderr string
	code   int
}

// ctl runs etcdctl against the server until it ends.
func (s *server) ctl(args ...string) ctlResult {
	s.t.Helper()
	return s.ctlWithInput("", args...)
}

// ctlWithInput is ctl with something on etcdctl's standard input.
func (s *server) ctlWithInput(input string, args ...string) ctlResult {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, s.etcdctlBinary(), s.ctlArguments(args)...)
	cmd.Env = ctlEnvironment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("etcdctl %q: %v", args, err)
	}
	if ctx.Err() != nil {
		s.t.Fatalf("etcdctl %q did not end: %v\n%s", args, ctx.Err(), stderr.String())
	}
	return ctlResult{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// mustCtl runs etcdctl, which has to succeed, and returns its output.
func (s *server) mustCtl(args ...string) string {
	s.t.Helper()
	r := s.ctl(args...)
	if r.code != 0 {
		s.t.Fatalf("etcdctl %q: exit status %d\n%s", args, r.code, r.stderr)
	}
	return r.stdout
}

// wantCtl compares all that etcdctl printed, after plain.
func (s *server) wantCtl(want string, args ...string) {
	s.t.Helper()
	if got := plain(s.mustCtl(args...)); got != want {
		s.t.Errorf("etcdctl %q\n got %q\nwant %q", args, got, want)
	}
}

// wantCtlError checks that etcdctl fails with this message, and prints nothing.
func (s *server) wantCtlError(code int, message string, args ...string) {
	s.t.Helper()
	r := s.ctl(args...)
	// Before its own message, the last line, the client library logs.
	all := strings.Split(strings.TrimSpace(r.stderr), "\n")
	if last := all[len(all)-1]; r.code != code || last != "Error: "+message {
		s.t.Errorf("etcdctl %q\n got exit status %d, %q\nwant exit status %d, %q", args, r.code, last, code, "Error: "+message)
	}
	wantEqual(s.t, "printed by a command that failed", r.stdout, "")
}

// etcdctlBinary is the path of the etcdctl that the tests of this server run.
func (s *server) etcdctlBinary() string {
	if s.etcdctl != "" {
		return s.etcdctl
	}
	return binaries.etcdctl
}

// ctlArguments names the endpoints, unless the arguments do: etcdctl would take both.
func (s *server) ctlArguments(args []string) []string {
	if slices.Contains(args, "--endpoints") {
		return args
	}
	return slices.Concat([]string{"--endpoints", s.addresses()}, s.ctlFlags, args)
}

// ctlEnvironment keeps the caller's own etcdctl settings out of the tests.
func ctlEnvironment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ETCDCTL_") {
			env = append(env, v)
		}
	}
	return env
}

var headerFields = []struct {
	pattern *regexp.Regexp
	plain   string
}{
	{regexp.MustCompile(`"cluster_id":[1-9]\d*`), `"cluster_id":C`},
	{regexp.MustCompile(`"member_id":[1-9]\d*`), `"member_id":M`},
	{regexp.MustCompile(`"raft_term":[1-9]\d*`), `"raft_term":T`},
	{regexp.MustCompile(`"ClusterID" : [1-9]\d*`), `"ClusterID" : C`},
	{regexp.MustCompile(`"MemberID" : [1-9]\d*`), `"MemberID" : M`},
	{regexp.MustCompile(`"RaftTerm" : [1-9]\d*`), `"RaftTerm" : T`},
}

// plain replaces what differs from one cluster to the next. Zeros stay, so that
// a header that was not filled is found out.
func plain(output string) string {
	for _, f := range headerFields {
		output = f.pattern.ReplaceAllString(output, f.plain)
	}
	return output
}

// jsonHeader is the header that etcdctl prints for a revision, after plain.
func jsonHeader(revision string) string {
	return `{"cluster_id":C,"member_id":M,"revision":` + revision + `,"raft_term":T}`
}

// ctlStream is an etcdctl that runs until it is stopped.
type ctlStream struct {
	t      *testing.T
	lines  chan string
	stderr *bytes.Buffer
	cmd    *exec.Cmd
	exited chan struct{}
}

// startCtl starts etcdctl and reads its output line by line.
func (s *server) startCtl(args ...string) *ctlStream {
	s.t.Helper()
	c := &ctlStream{
		t: s.t, lines: make(chan string, 10000), stderr: new(bytes.Buffer),
		cmd: exec.Command(s.etcdctlBinary(), s.ctlArguments(args)...), exited: make(chan struct{}),
	}
	c.cmd.Env, c.cmd.Stderr = ctlEnvironment(), c.stderr
	stdout, err := c.cmd.StdoutPipe()
	wantOK(s.t, "etcdctl's output", err)
	wantOK(s.t, "starting etcdctl", c.cmd.Start())
	go func() {
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			c.lines <- scanner.Text()
		}
		close(c.lines)
		c.cmd.Wait()
		close(c.exited)
	}()
	s.t.Cleanup(c.stop)
	return c
}

// stop ends etcdctl if it is still running, and waits for it.
func (c *ctlStream) stop() {
	c.cmd.Process.Kill()
	<-c.exited
}

// signal sends etcdctl a signal, which it may take as it likes.
func (c *ctlStream) signal(sig os.Signal) {
	c.t.Helper()
	wantOK(c.t, "signalling etcdctl", c.cmd.Process.Signal(sig))
}

// line is the next line that etcdctl prints.
func (c *ctlStream) line() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			<-c.exited
			c.t.Fatalf("etcdctl has ended: %v\n%s", c.cmd.ProcessState, c.stderr)
		}
		return plain(line)
	case <-time.After(waitLimit):
		c.t.Fatalf("%q printed nothing within %v", c.cmd.Args[1:], waitLimit)
	}
	return ""
}

// want checks the lines that etcdctl prints next.
func (c *ctlStream) want(what string, lines ...string) {
	c.t.Helper()
	for i, want := range lines {
		if got := c.line(); got != want {
			c.t.Fatalf("%s: line %d\n got %q\nwant %q", what, i+1, got, want)
		}
	}
}

// wantEnd checks that etcdctl ends by itself, without another word.
func (c *ctlStream) wantEnd(code int) {
	c.t.Helper()
	select {
	case <-c.exited:
	case <-time.After(waitLimit):
		c.t.Fatalf("etcdctl did not end within %v", waitLimit)
	}
	for line := range c.lines {
		c.t.Errorf("unexpected line %q", line)
	}
	wantEqual(c.t, "exit status", c.cmd.ProcessState.ExitCode(), code)
}

// lastError is the last line that an etcdctl which has ended wrote to its
// standard error.
func (c *ctlStream) lastError() string {
	<-c.exited
	all := strings.Split(strings.TrimSpace(c.stderr.String()), "\n")
	return all[len(all)-1]
}
