package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// stepLimit bounds each wait for an event. It is long, because the machine may be busy.
const stepLimit = 40 * time.Second

// errInterrupted is the cause of the end of a scenario whose starter asks for it or is gone.
var errInterrupted = errors.New("interrupted")

// scenarioConfig says what a scenario does.
type scenarioConfig struct {
	dir     string // the temporary directory, which must not exist
	console bool   // whether to run the web console
	keep    bool   // whether all goes on after the summary, until standard input ends
}

// scenario starts all processes, injects the faults and judges the record. Its fields are set before the first child
// starts. One goroutine runs it; the children's goroutines call receive and fail.
type scenario struct {
	scenarioConfig
	out      io.Writer
	began    clock.Instant
	fail     context.CancelCauseFunc // ends the scenario
	record   *record
	timeline *timeline
	cluster  *cluster
	children []*child // all that were started, ended ones too
	workers  []*attached
}

// attached is a worker with its link to the members.
type attached struct {
	name  string
	link  *link
	child *child
}

// newScenario returns the command of the process that runs the scenario.
func newScenario() *cobra.Command {
	var config scenarioConfig
	cmd := &cobra.Command{
		Use: "scenario DIRECTORY", Short: "Run the scenario of the demo", Hidden: true,
		Args: command.Exactly(1, "the directory to create"),
		RunE: func(cmd *cobra.Command, args []string) error {
			config.dir = args[0]
			return runScenario(cmd.Context(), config, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&config.console, "console", true, "")
	cmd.Flags().BoolVar(&config.keep, "keep", false, "")
	return cmd
}

// runScenario runs a scenario until it ends, or until in ends. It leaves no process and no file.
func runScenario(parent context.Context, config scenarioConfig, in io.Reader, out io.Writer) (err error) {
	surviveParent()
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	go func() { // it ends with the process
		io.Copy(io.Discard, in)
		fail(errInterrupted)
	}()
	if err := os.Mkdir(config.dir, 0o700); err != nil {
		return command.Failed("the demo cannot make its directory: %v; set TMPDIR to a directory that this user may write to", err)
	}
	s := &scenario{scenarioConfig: config, out: out, began: clock.Now(), fail: fail, record: newRecord()}
	defer func() { err = errors.Join(err, s.removeDirectory()) }()
	s.introduce()
	s.timeline = newTimeline(out, s.began, fail)
	err = s.play(ctx)
	if err == nil {
		err = s.linger(ctx)
	}
	s.end()
	if err != nil && !errors.Is(err, errInterrupted) {
		s.showLogs()
	}
	if errors.Is(err, errInterrupted) {
		err = errors.New("the demo was interrupted; it has ended all its processes and removes its files")
	}
	if err != nil {
		return command.Failed("%v", err)
	}
	return nil
}

// introduce says what the demo is about to do.
func (s *scenario) introduce() {
	s.print(`Three members of a cluster and two workers, blue and green, run as processes of this machine. Both
workers want the name %s with a TTL of %v. The holder writes to a file every %v. The
file refuses tokens that are older than the newest it has seen (package filefence).

All files are in this directory, and the demo removes them at the end:
%s

`, leaseName, leaseTTL, writeEvery, s.dir)
}

// play runs the scenario from the start of the members to the summary. All processes run on.
func (s *scenario) play(ctx context.Context) error {
	if err := s.startCluster(ctx); err != nil {
		return err
	}
	if s.console {
		if err := s.startConsole(ctx); err != nil {
			return err
		}
	}
	for _, name := range []string{"blue", "green"} {
		if err := s.attach(ctx, name); err != nil {
			return err
		}
		if err := s.await(ctx, name+" to claim the name", func() bool { return s.record.last[name].Kind != "" }); err != nil {
			return err
		}
	}
	for _, step := range s.steps() {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return s.summarize(ctx)
}

// startCluster starts the members and waits until all serve.
func (s *scenario) startCluster(ctx context.Context) error {
	start := func(name string, args ...string) (*child, error) { return s.startTied(ctx, name, nil, args...) }
	cluster, err := newCluster(start, "a", "b", "c")
	if err != nil {
		return err
	}
	s.cluster = cluster
	s.act("the demo starts the members a, b and c")
	for _, m := range cluster.members {
		if err := cluster.startMember(m); err != nil {
			return err
		}
	}
	leader, err := s.leader(ctx, len(cluster.members))
	if err != nil {
		return err
	}
	s.act("all members serve; member %s leads", leader.name)
	return nil
}

// leader is cluster.leader within stepLimit.
func (s *scenario) leader(ctx context.Context, n int) (*member, error) {
	limited, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	return s.cluster.leader(limited, n)
}

// startTied starts a command of leasekeeper that ends with this process. line receives the lines that it prints.
func (s *scenario) startTied(ctx context.Context, name string, line func(int, []byte), args ...string) (*child, error) {
	return s.startChild(ctx, name, line, append([]string{"demo", "tied"}, args...))
}

func (s *scenario) startChild(ctx context.Context, name string, line func(int, []byte), args []string) (*child, error) {
	c, err := startChild(ctx, childConfig{name: name, dir: s.dir, args: args, line: line, died: func(err error) { s.fail(err) }})
	if err == nil {
		s.children = append(s.children, c)
	}
	return c, err
}

// startConsole starts the web console and prints its link.
func (s *scenario) startConsole(ctx context.Context) error {
	links := make(chan string, 1)
	read := func(_ int, text []byte) {
		var opened struct{ URL string }
		if json.Unmarshal(text, &opened) == nil && opened.URL != "" {
			select {
			case links <- opened.URL:
			default: // the link is known
			}
		}
	}
	if _, err := s.startTied(ctx, "console", read, "console", "-o", console.JSON, "--store", s.store(s.cluster.addresses())); err != nil {
		return err
	}
	select {
	case url := <-links:
		s.act("the demo opens the web console: watch it in a browser at")
		s.act("  %s", url)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(stepLimit):
		return errors.New("the console did not start in time")
	}
}

// store returns the URL of the cluster at these addresses.
func (s *scenario) store(addresses []string) string {
	return "leasekeeper://" + strings.Join(addresses, ",") + "/"
}

// file returns the path of the resource.
func (s *scenario) file() string { return filepath.Join(s.dir, "report") }

// attach makes a link for a worker and starts it.
func (s *scenario) attach(ctx context.Context, name string) error {
	l, err := newLink(ctx, s.cluster.addresses())
	if err != nil {
		return fmt.Errorf("the demo cannot listen on this machine: %w", err)
	}
	w := &attached{name: name, link: l}
	s.workers = append(s.workers, w)
	return s.startWorker(ctx, w)
}

// startWorker starts the process of a worker. It may have run before.
func (s *scenario) startWorker(ctx context.Context, w *attached) (err error) {
	s.act("the demo starts %s", w.name)
	w.child, err = s.startChild(ctx, "worker-"+w.name, func(process int, text []byte) { s.receive(w.name, process, text) },
		[]string{"demo", "worker", "--holder", w.name, "--file", s.file(), "--store", s.store(w.link.addresses())})
	return err
}

// receive records a report of a worker and adds it to the timeline.
func (s *scenario) receive(worker string, process int, text []byte) {
	var p report
	if err := json.Unmarshal(text, &p); err != nil {
		s.fail(fmt.Errorf("%s printed %q, which is no report: %w", worker, text, err))
		return
	}
	s.record.add(worker, process, p)
	what := ""
	switch p.Kind {
	case reportWaits:
		what = worker + " waits for the name"
	case reportHolds:
		what = worker + " ACQUIRES the name and begins to write"
	case reportReleased:
		what = worker + " stops writing and releases the name"
	case reportEnded:
		what = worker + " sees by its own clock that its lease is over, and stops"
	case reportRefused:
		what = fmt.Sprintf("the file REFUSES the write of %s: token %d is older than %d", worker, p.Token, p.Highest)
	case reportFailed:
		what = worker + " reports: " + p.Why
	default:
		return
	}
	holder := worker
	if p.Token == 0 {
		holder = ""
	}
	s.timeline.add(event{at: p.At, what: shortened(what), holder: holder, token: p.Token})
}

// act adds an act of the demo to the timeline.
func (s *scenario) act(format string, args ...any) {
	s.timeline.add(event{at: clock.Now(), what: fmt.Sprintf(format, args...)})
}

// actOn is act for a tenure of the name.
func (s *scenario) actOn(t tenure, format string, args ...any) {
	s.timeline.add(event{at: clock.Now(), what: fmt.Sprintf(format, args...), holder: t.holder, token: t.token})
}

// await waits until met returns true. It calls met with the record locked. what says what it waits for.
func (s *scenario) await(ctx context.Context, what string, met func() bool) error {
	limit := time.NewTimer(stepLimit)
	defer limit.Stop()
	for {
		done := false
		changed := s.record.look(func() { done = met() })
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("the demo waited %v for %s: this machine may be too busy, so try it again", stepLimit, what)
		}
	}
}

// linger waits for the end of the standard input, with --keep.
func (s *scenario) linger(ctx context.Context) error {
	if !s.keep {
		return nil
	}
	s.print("\nEverything runs on. Press Ctrl-C to end it. In another terminal, try\n\n  leasekeeper ls --store %s\n\n", s.store(s.cluster.addresses()))
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) {
		return cause
	}
	return nil
}

// end ends all processes and links, and prints the rest of the timeline.
func (s *scenario) end() {
	for _, c := range s.children {
		c.ending.Store(true)
		c.cmd.Process.Kill() // it may have ended
	}
	for _, c := range s.children {
		c.end()
	}
	for _, w := range s.workers {
		w.link.close()
	}
	s.timeline.close()
}

// removeDirectory removes the temporary directory. All processes that write to it have ended.
func (s *scenario) removeDirectory() error {
	if err := os.RemoveAll(s.dir); err != nil {
		return command.Failed("the demo cannot remove its directory: %v; remove %s", err, s.dir)
	}
	return nil
}

// showLogs prints the end of what each process logged.
func (s *scenario) showLogs() {
	const lines = 8
	names, _ := filepath.Glob(filepath.Join(s.dir, "*.log")) // its pattern is valid
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil || len(text) == 0 {
			continue
		}
		all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		s.print("\nThe last lines of %s:\n\n%s\n", filepath.Base(name), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
}

// print prints text that is not part of the timeline.
func (s *scenario) print(format string, args ...any) {
	if err := console.PrintLines(s.out, fmt.Sprintf(format, args...)); err != nil {
		s.fail(fmt.Errorf("the demo cannot print: %w", err))
	}
}

// newer returns the newest tenure with a higher token than token. The record is locked.
func (s *scenario) newer(token leasekeeper.Token) *tenure {
	if t := s.record.current(); t != nil && t.token > token {
		return t
	}
	return nil
}
