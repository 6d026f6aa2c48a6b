//go:build unix

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// demoRun is a running `leasekeeper demo`.
type demoRun struct {
	t       *testing.T
	program string // the built command, which no other process runs
	dir     string // its working directory, its home, and its directory for temporary files
	cmd     *exec.Cmd
	lines   chan string // its output; closed at its end
	printed []string    // the lines that the test has received
	stderr  bytes.Buffer
}

// buildDemo builds the command once for all tests of the demo.
func buildDemo(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "leasekeeper")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is released; also if these tests run under the race detector
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return program
}

// startDemo starts the built command with arguments.
func startDemo(t *testing.T, program string, args ...string) *demoRun {
	t.Helper()
	d := &demoRun{t: t, program: program, dir: t.TempDir(), lines: make(chan string, 1000)}
	d.cmd = exec.Command(program, append([]string{"demo"}, args...)...)
	d.cmd.Dir = d.dir
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.dir, "HOME="+d.dir, "XDG_STATE_HOME="+d.dir, "LEASEKEEPER_DATA_DIR="+d.dir)
	// Wait waits until no process of the demo has the pipe to this buffer open.
	d.cmd.Stderr = &d.stderr
	output, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.cmd.Process.Kill() // the demo has ended, unless the test failed
		for range d.lines {
		}
	})
	go func() {
		defer close(d.lines)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			d.lines <- lines.Text()
		}
	}()
	return d
}

// demoLimit bounds each wait of the tests of the demo.
const demoLimit = 3 * time.Minute

// await reads the output until a line contains a text, and returns that line.
func (d *demoRun) await(text string) string {
	d.t.Helper()
	limit := time.After(demoLimit)
	for {
		select {
		case line, more := <-d.lines:
			if !more {
				d.t.Fatalf("the demo printed no %q, but:\n%s\n%s", text, strings.Join(d.printed, "\n"), d.stderr.String())
			}
			d.printed = append(d.printed, line)
			if strings.Contains(line, text) {
				return line
			}
		case <-limit:
			d.t.Fatalf("the demo prints no %q, but:\n%s", text, strings.Join(d.printed, "\n"))
		}
	}
}

// end reads the rest of the output and returns the exit code, -1 for a signal.
func (d *demoRun) end() int {
	d.t.Helper()
	for line := range d.lines {
		d.printed = append(d.printed, line)
	}
	var ended *exec.ExitError
	if err := d.cmd.Wait(); err != nil && !errors.As(err, &ended) {
		d.t.Fatal(err)
	}
	return d.cmd.ProcessState.ExitCode()
}

// leavesNothing fails if a process or a file of the demo is left. limit is how long it waits for their end.
func (d *demoRun) leavesNothing(limit time.Duration) {
	d.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		processes := processesOf(d.t, d.program)
		files, err := os.ReadDir(d.dir)
		if err != nil {
			d.t.Fatal(err)
		}
		if len(processes) == 0 && len(files) == 0 {
			return
		}
		if !time.Now().Before(deadline) {
			d.t.Fatalf("left are the processes %v and the files %v; it printed:\n%s", processes, files, strings.Join(d.printed, "\n"))
		}
	}
}

// processesOf returns the processes that run a program: their ids and command lines.
func processesOf(t *testing.T, program string) (found []string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		text, err := exec.Command("ps", "-A", "-o", "pid=,args=").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, program) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && file == program {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			found = append(found, filepath.Base(filepath.Dir(link))+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// processOf returns the id of the one process of the demo whose command line contains a text.
func (d *demoRun) processOf(text string) int {
	d.t.Helper()
	var ids []int
	for _, process := range processesOf(d.t, d.program) {
		if id, line, _ := strings.Cut(process, " "); strings.Contains(line, text) {
			n, err := strconv.Atoi(id)
			if err != nil {
				d.t.Fatal(err)
			}
			ids = append(ids, n)
		}
	}
	if len(ids) != 1 {
		d.t.Fatalf("the processes with %q are %v", text, ids)
	}
	return ids[0]
}

func TestDemoShowsEachTakeoverAndRefusal(t *testing.T) {
	d := startDemo(t, buildDemo(t))
	link := regexp.MustCompile(`http://\S+`).FindString(d.await("http://"))
	answer, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !bytes.Contains(page, []byte("console")) {
		t.Errorf("the console answers %s, %v: %.80q", answer.Status, err, page)
	}
	if code := d.end(); code != command.ExitDone {
		t.Fatalf("exit code %d; it printed:\n%s\n%s", code, strings.Join(d.printed, "\n"), &d.stderr)
	}
	d.leavesNothing(0)
	checkDemoEvents(t, d.printed)
	checkDemoSummary(t, d.printed)
}

// demoEvent is a line of the timeline.
var demoEvent = regexp.MustCompile(`^ *([0-9]+\.[0-9]{3})  (.*?)(?: +(blue|green) +([0-9]+))?$`)

// checkDemoEvents fails unless the timeline has each fault and what must follow it.
func checkDemoEvents(t *testing.T, printed []string) {
	t.Helper()
	wanted := []string{
		"starts the members", "all members serve", "ACQUIRES", "KILLS (blue|green)", "ACQUIRES", "KILLS member", "leads now", "all members serve",
		"PAUSES", "ACQUIRES", "CONTINUES", "REFUSES", "CUTS", "ACQUIRES", "asks .* to release", "releases the name", "ACQUIRES",
	}
	var events [][]string
	for _, line := range printed {
		if len([]rune(line)) > 100 {
			t.Errorf("%q has more than 100 columns", line)
		}
		if parts := demoEvent.FindStringSubmatch(line); parts != nil {
			events = append(events, parts)
		}
	}
	// On a busy machine a report may come so late that its line is not in its place.
	slices.SortStableFunc(events, func(a, b []string) int { return cmp.Compare(secondsOf(t, a[1]), secondsOf(t, b[1])) })
	token, ends := uint64(0), 0
	for _, parts := range events {
		switch {
		case strings.Contains(parts[2], "ACQUIRES"):
			next, err := strconv.ParseUint(parts[4], 10, 64)
			if err != nil || next <= token {
				t.Errorf("%q has no higher token than %d, %v", parts[0], token, err)
			}
			token = next
		case strings.Contains(parts[2], "sees by its own clock"):
			ends++
		}
		if len(wanted) > 0 && regexp.MustCompile(wanted[0]).MatchString(parts[2]) {
			wanted = wanted[1:]
		}
	}
	if ends < 2 {
		t.Errorf("%d workers saw the end of their lease, want the paused one and the one without network:\n%s", ends, strings.Join(printed, "\n"))
	}
	if len(wanted) > 0 {
		t.Errorf("the timeline lacks %q in its place:\n%s", wanted[0], strings.Join(printed, "\n"))
	}
}

// secondsOf returns the value of a number with a fraction.
func secondsOf(t *testing.T, text string) float64 {
	t.Helper()
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seconds
}

// checkDemoSummary fails unless the tenures do not overlap, and all facts hold.
func checkDemoSummary(t *testing.T, printed []string) {
	t.Helper()
	first := slices.IndexFunc(printed, func(line string) bool { return strings.HasPrefix(line, "TOKEN") })
	if first < 0 {
		t.Fatalf("there is no table of tenures:\n%s", strings.Join(printed, "\n"))
	}
	tenures, over := 0, 0.0
	for _, line := range printed[first+1:] {
		cells := strings.Fields(line)
		if len(cells) == 0 {
			break
		}
		if len(cells) < 5 {
			t.Fatalf("the row of a tenure is %q", line)
		}
		from, end := secondsOf(t, cells[2]), secondsOf(t, cells[4])
		if from < over || end <= from {
			t.Errorf("%q begins before %.3f, or does not end later than it begins", line, over)
		}
		tenures, over = tenures+1, end
	}
	if tenures < 5 {
		t.Errorf("%d tenures, want one after each fault but the leader's death", tenures)
	}
	facts := regexp.MustCompile(`(?m)^ok +(tokens strictly increase +[0-9]+ <|two holders at once +never|accepted writes +[1-9]|lines in the file +[1-9]|refused writes +[1-9]|longest time without a holder +[0-9])`)
	text := strings.Join(printed[first:], "\n")
	if n := len(facts.FindAllString(text, -1)); n != 6 || strings.Contains(text, "BROKEN") {
		t.Errorf("%d facts hold, want 6:\n%s", n, text)
	}
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	program := buildDemo(t)
	for _, c := range []struct {
		args []string
		when string
		by   os.Signal
		code int
	}{
		{[]string{"--console=false"}, "starts the members", syscall.SIGTERM, command.ExitFailed},
		{nil, "KILLS", os.Interrupt, command.ExitFailed},
		{[]string{"--keep"}, "Press Ctrl-C", os.Interrupt, command.ExitDone},
	} {
		d := startDemo(t, program, c.args...)
		d.await(c.when)
		if err := d.cmd.Process.Signal(c.by); err != nil {
			t.Fatal(err)
		}
		if code := d.end(); code != c.code {
			t.Errorf("%v at %q: exit code %d, want %d; it printed:\n%s\n%s", c.by, c.when, code, c.code, strings.Join(d.printed, "\n"), &d.stderr)
		}
		d.leavesNothing(0)
	}
}

// The demo ends as soon as it cannot print.
func TestDemoThatCannotPrintLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this system has no file that is always full")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	program, dir := buildDemo(t), t.TempDir()
	d := &demoRun{t: t, program: program, dir: dir, cmd: exec.Command(program, "demo", "--console=false", "--keep")}
	d.cmd.Dir, d.cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "XDG_STATE_HOME="+dir, "LEASEKEEPER_DATA_DIR="+dir)
	d.cmd.Stdout, d.cmd.Stderr = full, &d.stderr
	if err := d.cmd.Run(); d.cmd.ProcessState.ExitCode() != command.ExitFailed || !strings.Contains(d.stderr.String(), "cannot print") {
		t.Errorf("%v; it wrote %q", err, &d.stderr)
	}
	d.leavesNothing(0)
}

// A worker is paused when the demo dies, so the worker cannot end by itself.
func TestKilledDemoLeavesNothing(t *testing.T) {
	d := startDemo(t, buildDemo(t), "--console=false")
	d.await("PAUSES")
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := d.end(); code != -1 {
		t.Errorf("exit code %d", code)
	}
	d.leavesNothing(demoLimit)
}

func TestDemoWithoutItsScenarioLeavesNothing(t *testing.T) {
	d := startDemo(t, buildDemo(t), "--console=false")
	d.await("PAUSES")
	if err := syscall.Kill(d.processOf(" demo scenario "), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := d.end(); code != command.ExitFailed {
		t.Errorf("exit code %d, want %d", code, command.ExitFailed)
	}
	if !strings.Contains(d.stderr.String(), "killed") {
		t.Errorf("it wrote %q", &d.stderr)
	}
	d.leavesNothing(0)
}

// A member that dies by itself is no part of the demo.
func TestDemoThatLosesAMemberShowsTheLogs(t *testing.T) {
	d := startDemo(t, buildDemo(t), "--console=false")
	d.await("waits for the name")
	if err := syscall.Kill(d.processOf(" --name a "), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := d.end(); code != command.ExitFailed {
		t.Errorf("exit code %d, want %d", code, command.ExitFailed)
	}
	if text := d.stderr.String(); !strings.Contains(text, "member-a has ended by itself") {
		t.Errorf("it wrote %q", text)
	}
	if text := strings.Join(d.printed, "\n"); !strings.Contains(text, "The last lines of member-b.log:") || !strings.Contains(text, "level=") {
		t.Errorf("it shows no log of a member:\n%s", text)
	}
	d.leavesNothing(0)
}
