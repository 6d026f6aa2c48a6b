//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// syncs are the system calls that write data to stable storage.
const syncs = "fsync,fdatasync,sync_file_range"

// trace is a strace that is attached to a process.
type trace struct {
	cmd  *exec.Cmd
	said lockedBuffer
}

// lockedBuffer can be read while a process writes to it. mu guards text.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// tamper has each call that makes data stable go wrong as strace puts it, in one process, from now on. It returns an
// error if there is no strace, or if the system does not let it trace; the test fails then if LEASEKEEPER_TEST_REQUIRE
// names strace.
func (g *cluster) tamper(i int, how string) (*trace, error) {
	g.t.Helper()
	s, err := g.attach(i, how)
	if err != nil && required.Is("strace") {
		g.t.Fatalf("LEASEKEEPER_TEST_REQUIRE has strace, and no disk can be slowed down: %v", err)
	}
	return s, err
}

// attach has strace change what a process hears of its syncs.
func (g *cluster) attach(i int, how string) (*trace, error) {
	path, err := exec.LookPath("strace")
	if err != nil {
		return nil, err
	}
	pid := strconv.Itoa(g.members[i].process.cmd.Process.Pid)
	s := &trace{cmd: exec.Command(path, "-f", "-p", pid, "-e", "trace="+syncs, "-e", "inject="+syncs+":"+how)}
	s.cmd.Stderr = &s.said
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		close(ended)
	}()
	refused := false
	g.eventually("strace has attached, or says why it cannot", func() bool {
		select {
		case <-ended:
			refused = true
			return true
		default:
			return strings.Contains(s.said.String(), "attached")
		}
	})
	if refused {
		return nil, fmt.Errorf("strace: %s", s.said.String())
	}
	return s, nil
}

// end detaches strace.
func (s *trace) end() { _ = s.cmd.Process.Signal(unix.SIGTERM) }

// limitFiles makes every write fail that would make a file longer than bytes.
func (g *cluster) limitFiles(i int, bytes uint64) error {
	limit := &unix.Rlimit{Cur: bytes, Max: bytes}
	return unix.Prlimit(g.members[i].process.cmd.Process.Pid, unix.RLIMIT_FSIZE, limit, nil)
}
