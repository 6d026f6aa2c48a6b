//go:build unix

package pageprogram

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Job is the command that programs of pages run as their job.
const Job = "nightly-backup"

// The lines that a job prints.
const (
	begun   = "the job begins"
	overlap = "two jobs run at the same time"
)

// jobScript runs until the test makes the file for its process. Two jobs at the same time cannot both make the directory.
const jobScript = `#!/bin/sh
mkdir "$FLEET/busy" 2>/dev/null || { echo "` + overlap + `"; exit 0; }
echo "` + begun + `"
while [ ! -e "$FLEET/finish-$PROCESS" ]; do sleep 0.02; done
rmdir "$FLEET/busy"
`

// limit bounds each wait for a process.
const limit = time.Minute

// Fleet is a group of processes whose jobs must not run at the same time. Its methods fail the test.
type Fleet struct {
	t     *testing.T
	dir   string
	count int
}

// NewFleet makes a fleet without processes.
func NewFleet(t *testing.T) *Fleet {
	t.Helper()
	f := &Fleet{t: t, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(f.dir, Job), []byte(jobScript), 0o700); err != nil {
		t.Fatal(err)
	}
	return f
}

// Process is a program of a page that runs. The end of the test kills it.
type Process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	stop string // the file that ends the job

	mu    sync.Mutex
	lines []string
	quiet bool          // the output has ended, and collect reaps the process
	news  chan struct{} // has room for one: there may be more lines, or the end
	ended chan struct{} // closed after the last line and the exit
	err   error         // how it exited, after ended
}

// Start starts a program with variables of the environment besides the test's own, such as DATABASE_URL=….
func (f *Fleet) Start(name, program string, env ...string) *Process {
	f.t.Helper()
	return f.StartCommand(name, exec.Command(program), env...)
}

// StartCommand is Start for a command with arguments.
func (f *Fleet) StartCommand(name string, cmd *exec.Cmd, env ...string) *Process {
	f.t.Helper()
	f.count++
	number := strconv.Itoa(f.count)
	p := &Process{t: f.t, name: name, cmd: cmd, stop: filepath.Join(f.dir, "finish-"+number),
		news: make(chan struct{}, 1), ended: make(chan struct{})}
	cmd.Env = append(append(os.Environ(), env...), "FLEET="+f.dir, "PROCESS="+number, "PATH="+f.dir+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the job can be killed too
	out, in, err := os.Pipe()
	if err != nil {
		f.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	_ = in.Close() // the process has its own
	if err != nil {
		_ = out.Close()
		f.t.Fatal(err)
	}
	go p.collect(out)
	f.t.Cleanup(func() {
		p.kill()
		<-p.ended
	})
	return p
}

// collect reads what the process and its job print, until both have ended.
func (p *Process) collect(out io.ReadCloser) {
	defer close(p.ended)
	defer out.Close()
	for s := bufio.NewScanner(out); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
	p.mu.Lock()
	p.quiet = true
	p.mu.Unlock()
	p.err = p.cmd.Wait()
}

// kill kills the process and its job, unless they have ended. After the process was reaped, its ID may be that of an
// unrelated group.
func (p *Process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet { // the job has ended, because it has the same output
		_ = p.cmd.Process.Kill() // its error is that the process has ended
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the process may have ended, but was not reaped
}

// printed reports whether a line of the output contains the text.
func (p *Process) printed(text string) bool {
	return strings.Contains(p.output(), text)
}

func (p *Process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// Await waits until the process has printed the text.
func (p *Process) Await(text string) {
	p.t.Helper()
	late := time.After(limit)
	for !p.printed(text) {
		select {
		case <-p.news:
		case <-p.ended:
			if !p.printed(text) {
				p.t.Fatalf("%s ended without %q: %v\n%s", p.name, text, p.err, p.output())
			}
		case <-late:
			p.t.Fatalf("%s did not print %q:\n%s", p.name, text, p.output())
		}
	}
}

// Works waits until the job of the process runs.
func (p *Process) Works() {
	p.t.Helper()
	p.Await(begun)
}

// Overlaps waits until the process has found that another job runs.
func (p *Process) Overlaps() {
	p.t.Helper()
	p.Await(overlap)
}

// Finish ends the job, and waits until the process has ended without an error.
func (p *Process) Finish() {
	p.t.Helper()
	if err := os.WriteFile(p.stop, nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.Exits(0)
}

// Signal sends a signal to the process, and not to its job.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// Refused waits until the process has ended with the exit code, and fails unless it printed the text and its job never
// began.
func (p *Process) Refused(code int, text string) {
	p.t.Helper()
	p.Exits(code)
	if p.printed(begun) || p.printed(overlap) || !p.printed(text) {
		p.t.Errorf("%s printed this, and not only %q:\n%s", p.name, text, p.output())
	}
}

// Exits waits until the process has ended with the exit code, and its job has ended too.
func (p *Process) Exits(code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.t.Fatalf("%s did not end:\n%s", p.name, p.output())
	}
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		got = exit.ExitCode()
	} else if p.err != nil {
		p.t.Fatalf("%s: %v", p.name, p.err)
	}
	if got != code {
		p.t.Fatalf("%s exited with %d, want %d:\n%s", p.name, got, code, p.output())
	}
}
