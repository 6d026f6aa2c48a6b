package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// startLimit bounds how long a target may take to become ready, and stopLimit how long it may take to
	// go after it was asked.
	startLimit = 30 * time.Second
	stopLimit  = 10 * time.Second
)

// server is a target that runs.
type server struct {
	*target
	dir  string
	addr string
	// metricsURL may be empty.
	metricsURL string
	args       []string
	cmd        *exec.Cmd
	log        bytes.Buffer // its output; read it only after exited
	exited     chan struct{}
	err        error         // valid after exited
	before     time.Duration // on a core, of processes that were killed
	fellows    []*server     // the other members of its cluster; nil for a server that is alone
	token      string        // of the user that loads it; "" while it has no users
}

// start runs a target on an empty directory below parent, and returns once it answers. Another process may take a port
// between its choice and its use, so start tries again.
func (t *target) start(ctx context.Context, parent string) (*server, error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		s, err := t.startOnce(ctx, parent)
		if err == nil || attempt == attempts || ctx.Err() != nil {
			return s, err
		}
	}
}

func (t *target) startOnce(ctx context.Context, parent string) (*server, error) {
	dir, err := os.MkdirTemp(parent, "server-")
	if err != nil {
		return nil, err
	}
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	s := &server{target: t, dir: dir, addr: addrs[0], args: t.arguments(filepath.Join(dir, "data"), addrs[0], addrs[1])}
	if t.metrics != nil {
		s.metricsURL = t.metrics(addrs[0], addrs[1])
	}
	if err := s.launch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.awaitReady(ctx, startLimit); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", t.name, err), s.stop())
	}
	return s, nil
}

// launch starts the process on the present contents of its directory. No process may be running.
func (s *server) launch() error {
	cmd := exec.Command(s.binary, s.args...)
	if s.files > 0 {
		cmd = exec.Command("sh", append([]string{"-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(s.files), s.binary}, s.args...)...)
	}
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() {
		s.err = cmd.Wait()
		close(exited)
	}()
	return nil
}

// kill ends the process as a crash does, and leaves the directory as it is.
func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.exited
	s.before = s.ownTime()
}

// awaitReady returns once a linearizable read is answered.
func (s *server) awaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conns, err := dial(s.addr, 1)
	if err != nil {
		return err
	}
	defer conns.close()
	for {
		_, err := pb.NewKVClient(conns[0]).Range(ctx, &pb.RangeRequest{Key: []byte("ready")})
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("it ended before it was ready: %w", s.err)
		case <-ctx.Done():
			return fmt.Errorf("it is not ready: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stop ends the process, waits for it, and removes its directory. It returns an error, with the process's
// last output, if the process had ended before or did not end on the signal.
func (s *server) stop() error {
	var err error
	select {
	case <-s.exited:
		err = fmt.Errorf("%s ended by itself: %v", s.name, s.err)
	default:
		s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.exited:
		case <-time.After(stopLimit):
			s.cmd.Process.Kill()
			<-s.exited
			err = fmt.Errorf("%s did not end within %v of SIGTERM", s.name, stopLimit)
		}
	}
	if err != nil {
		err = fmt.Errorf("%w; it wrote:\n%s", err, s.lastWords())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// discard kills the process instead of stopping it. It returns an error too if the process had ended before.
func (s *server) discard() error {
	select {
	case <-s.exited:
		return s.stop()
	default:
		s.cmd.Process.Kill()
		<-s.exited
		return os.RemoveAll(s.dir)
	}
}

// cpuTime is how much time on a core the server and the others of its cluster have used so far.
func (s *server) cpuTime() time.Duration {
	used := s.ownTime()
	for _, fellow := range s.fellows {
		used += fellow.ownTime()
	}
	return used
}

// ownTime is how much time on a core the process, and those before that were killed, have used so far, or in
// all once it was waited for.
func (s *server) ownTime() time.Duration {
	select {
	case <-s.exited:
		return s.before + s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime()
	default:
		return s.before + cpuTime(strconv.Itoa(s.cmd.Process.Pid))
	}
}

func (s *server) lastWords() string {
	const most = 4 << 10
	text := s.log.Bytes()
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return strings.TrimSpace(string(text))
}

// freeAddrs chooses loopback addresses without a listener.
func freeAddrs(n int) ([]string, error) {
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // held until all are chosen, so that they differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
