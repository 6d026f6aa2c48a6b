package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// startLimit bounds how long a server may take to become ready.
const startLimit = 30 * time.Second

// launchOptions describe how to run `leasekeeper serve`.
type launchOptions struct {
	dir  string // the working directory, which receives server.out and server.err
	env  []string
	args []string
	over <-chan struct{} // when closed, launch kills a server that is not ready; nil for never
	// files is the number of file descriptors that the server may have; 0 leaves it at what this process may have.
	files int
}

// running is a server in a process of its own.
type running struct {
	cmd      *exec.Cmd
	endpoint string
	http     string
	ended    chan struct{}
}

// launch starts a server on free ports, unless the arguments choose others, and waits until it prints that it is ready.
func launch(o launchOptions) (*running, error) {
	logs, err := os.OpenFile(filepath.Join(o.dir, "server.err"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer logs.Close()
	printed, err := os.OpenFile(filepath.Join(o.dir, "server.out"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}
	args = append([]string{"leasekeeper"}, append(args, o.args...)...)
	if o.files > 0 {
		args = append([]string{"sh", "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(o.files)}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = o.dir, o.env, logs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &running{cmd: cmd, ended: make(chan struct{})}
	ready := make(chan struct{})
	go r.follow(io.TeeReader(stdout, printed), ready)
	select {
	case <-ready:
		return r, nil
	case <-r.ended:
		text, _ := os.ReadFile(logs.Name())
		return nil, fmt.Errorf("the server ended before it was ready:\n%s", text)
	case <-time.After(startLimit):
		r.kill()
		return nil, errors.New("the server did not become ready")
	case <-o.over:
		r.kill()
		return nil, errors.New("the server was not ready at the end")
	}
}

// follow reads the output of the server until it ends, and then waits for the process.
func (r *running) follow(output io.Reader, ready chan struct{}) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		switch word := strings.Fields(lines.Text()); {
		case len(word) == 2 && word[0] == "clients":
			r.endpoint = word[1]
		case len(word) == 2 && word[0] == "http":
			r.http = word[1]
		case strings.HasPrefix(lines.Text(), "Stop it"):
			close(ready)
		}
	}
	r.cmd.Wait() // ProcessState has the outcome
	close(r.ended)
}

// wait waits for the end of the server and returns its exit code, or -1 if a signal killed it.
func (r *running) wait() int {
	<-r.ended
	return r.cmd.ProcessState.ExitCode()
}

// kill kills the server with SIGKILL. The server may have ended already.
func (r *running) kill() {
	r.cmd.Process.Kill()
	<-r.ended
}

// table is a map that concurrent scripts may use.
type table[K comparable, V any] struct {
	mu   sync.Mutex
	rows map[K]V
}

func newTable[K comparable, V any]() *table[K, V] { return &table[K, V]{rows: make(map[K]V)} }

func (t *table[K, V]) set(k K, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows[k] = v
}

func (t *table[K, V]) get(k K) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[k]
}
