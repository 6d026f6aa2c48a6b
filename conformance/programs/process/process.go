package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// probeLimit bounds one question whether a server is ready.
const probeLimit = 5 * time.Second

// A Process is one run of a program. Make one with [Start]. Its methods are safe for concurrent use.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid after exited
}

// Start starts a program, which appends to the log.
func Start(log, program string, arguments ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, arguments...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	go func() { // ends with the process
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitCode returns the exit code of the process; -1 while it runs, or if a signal ended it.
func (p *Process) ExitCode() int {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Terminate asks the process to end.
func (p *Process) Terminate() { p.cmd.Process.Signal(syscall.SIGTERM) }

// Kill ends the process without a chance to finish anything, and waits for its end.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

// AwaitReady waits until a URL of the process answers with the status 200, at most for the limit.
func (p *Process) AwaitReady(url string, limit time.Duration) error {
	return p.AwaitReadyOver(http.DefaultClient, url, limit)
}

// AwaitReadyOver is AwaitReady with a client, for example one that has a certificate.
func (p *Process) AwaitReadyOver(client *http.Client, url string, limit time.Duration) error {
	var last error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-p.exited:
			return fmt.Errorf("ended before it was ready: %v", p.err)
		default:
		}
		code, err := statusOf(client, url)
		if err == nil && code == http.StatusOK {
			return nil
		}
		last = fmt.Errorf("%s: status %d, %v", url, code, err)
	}
	return fmt.Errorf("not ready within %v: %w", limit, last)
}

func statusOf(client *http.Client, url string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	request.Close = true
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// ShowLog prints the last 16 KiB of a log, and the first panic in it, to the output of a test.
func ShowLog(t testing.TB, of, log string) {
	t.Helper()
	const most = 16 << 10
	data, err := os.ReadFile(log)
	if err != nil {
		t.Logf("no log of %s: %v", of, err)
		return
	}
	if i := bytes.Index(data, []byte("\npanic: ")); i >= 0 { // of any run; later ones may have logged a lot
		t.Logf("%s has panicked:%s", of, data[i:min(len(data), i+most)])
	}
	if len(data) > most {
		data = append([]byte("[...]"), data[len(data)-most:]...)
	}
	t.Logf("log of %s:\n%s", of, data)
}

var nextPort atomic.Int64

// Address returns a loopback address, host:port, where nothing listens. The port is one of count ports from first on. The
// caller chooses these below the range from which the system takes ports for outgoing connections, so that no client of another
// test can occupy the port in between.
func Address(t testing.TB, first, count int64) string {
	t.Helper()
	offset := int64(os.Getpid()) * 97
	for range count {
		port := first + (offset+nextPort.Add(1))%count
		addr := net.JoinHostPort("127.0.0.1", strconv.FormatInt(port, 10))
		l, err := net.Listen("tcp", addr)
		if err == nil {
			l.Close()
			return addr
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
	t.Fatal("no free port")
	return ""
}
