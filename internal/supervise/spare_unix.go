//go:build linux || darwin

package supervise

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// guardProcess is the guard as the wrapper sees it.
type guardProcess struct {
	link    *link
	process *os.Process
}

// launchGuard starts the guard with one end of a socket, and keeps the other end. The guard waits for its order.
func launchGuard(o Options) (*guardProcess, error) {
	g := &guardProcess{}
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(ends[1])
	// The guard inherits its end under the same descriptor. It is a new descriptor, so it cannot be one that the caller
	// meant the command to inherit.
	syscall.CloseOnExec(ends[0])
	if err := syscall.SetNonblock(ends[0], true); err != nil {
		syscall.Close(ends[0])
		return nil, err
	}
	g.link = newLink(os.NewFile(uintptr(ends[0]), "guard"))
	path := o.GuardPath
	if ownPath != "" {
		path = ownPath
	}
	// Without package os/exec, whose initialization comes late, the guard starts early: see package deadlineguard.
	g.process, err = os.StartProcess(path, append(slices.Clone(o.GuardArgs), strconv.Itoa(ends[1])), &os.ProcAttr{
		Files: []*os.File{o.Command.Stdin, o.Command.Stdout, o.Command.Stderr},
		// Its own group, because the keyboard's signals to the command or the wrapper are not for the guard.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		g.link.file.Close()
		return nil, err
	}
	return g, nil
}

// end ends a guard that has no order.
func (g *guardProcess) end() {
	g.process.Kill()
	g.link.file.Close()
	g.process.Wait() // its error is that it was killed
}

// spareLimit is how long a guard waits for its order. A caller that waits longer for its lease needs no second process
// meanwhile.
const spareLimit = 2 * time.Second

// SpareGuard is a guard that has no order yet. It is safe for concurrent use. A nil SpareGuard has no guard.
type SpareGuard struct {
	mu    sync.Mutex
	guard *guardProcess // nil once Run has taken it, or it was ended
	limit *time.Timer   // ends the guard; nil if none was started
}

// StartGuard starts the guard, so that it starts while the caller acquires the lease. Of the options it uses GuardPath,
// GuardArgs, and the files of Command. [Run] takes the guard from [Options.Spare]. If the guard could not start, has ended,
// or was not taken within two seconds, Run starts another. The caller calls Close.
func StartGuard(o Options) *SpareGuard {
	s := &SpareGuard{}
	guard, err := launchGuard(o)
	if err != nil {
		return s // Run tries again, and returns the error
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard = guard
	s.limit = time.AfterFunc(spareLimit, s.Close)
	return s
}

// take returns the guard, which then belongs to the caller; nil if there is none.
func (s *SpareGuard) take() *guardProcess {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove()
}

// remove is take for a caller that holds mu.
func (s *SpareGuard) remove() *guardProcess {
	guard := s.guard
	s.guard = nil
	if s.limit != nil {
		s.limit.Stop()
	}
	return guard
}

// Close ends the guard, unless Run has taken it. It returns when the process has ended.
func (s *SpareGuard) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if guard := s.remove(); guard != nil {
		guard.end()
	}
}
