package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// totalLimit bounds a run, and scenarioLimit one scenario on one target. A run that reaches its limit can be resumed.
const (
	totalLimit    = 4 * time.Hour
	scenarioLimit = 10 * time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, totalLimit, fmt.Errorf("the run reached its limit of %v", totalLimit))
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == attackerArgument {
		attackMain(ctx, os.Args[2:])
		return
	}
	if crowdMain(ctx) {
		return
	}
	if len(os.Args) > 1 && os.Args[1] == busyArgument {
		spin(os.Stdin)
		return
	}
	b, err := configure(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = b.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run builds, measures and prints. It prints each row when it is measured.
func (b *bench) run(ctx context.Context, out io.Writer) (err error) {
	parent := b.dir
	if parent == "" {
		parent = "."
	}
	dir, err := os.MkdirTemp(parent, "bench-*.data")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if b.version == "" {
		b.version = commit()
	}
	b.machine = machineOf(dir)
	facts, err := describe(dir, b.version)
	if err != nil {
		return err
	}
	if err := writeFacts(out, facts); err != nil {
		return err
	}
	defer b.say.clear()
	switch {
	case b.databases:
		return b.measureDatabases(ctx, out, dir)
	case b.overloaded:
		return b.overloads(ctx, out, dir)
	case b.starts:
		return b.measureStarts(ctx, out, dir)
	case b.abusive:
		return b.abuse(ctx, out, dir, b.span)
	case b.against != "":
		return b.compare(ctx, out, dir)
	case b.board:
		return b.writeBoard(ctx, out, dir, facts)
	case b.cluster:
		_, err := b.runClusters(ctx, out, dir)
		return err
	default:
		_, err := b.runServers(ctx, out, dir)
		return err
	}
}

// newRecorder makes the recorder of a table. mode distinguishes runs of different kinds with the same flags.
func (b *bench) newRecorder(out io.Writer, t *table, mode string) (*recorder, error) {
	rec := &recorder{out: out, say: b.say, table: t, noise: &b.noise}
	if b.version == "" || strings.HasSuffix(b.version, dirtySuffix) {
		if !b.warned {
			b.warned = true
			fmt.Fprintln(out, "\nThis run cannot be resumed: the working tree differs from its commit, so rows are not kept.")
		}
		return rec, nil
	}
	j, err := openJournal(b.results, series{Commit: b.version, Machine: b.machine, Flags: b.flagsOf(mode)})
	if err != nil {
		return nil, err
	}
	if j.damaged > 0 {
		fmt.Fprintf(out, "\n%s: %d damaged lines are ignored; their rows are measured again.\n", b.results, j.damaged)
	}
	if b.fresh || len(j.rows) == 0 || j.finished && !b.board {
		if err := j.begin(); err != nil {
			return nil, err
		}
	}
	if len(j.rows) > 0 {
		fmt.Fprintf(out, "\n%d rows were measured by an earlier run at this commit and are taken from %s; -fresh measures them again.\n", len(j.rows), b.results)
	}
	rec.journal = j
	return rec, nil
}

// serverWidth is the width of the names of rows about single servers.
const serverWidth = 52

// runServers measures single servers.
func (b *bench) runServers(ctx context.Context, out io.Writer, dir string) (*recorder, error) {
	t := &table{reference: reference, nameWidth: serverWidth}
	for _, target := range b.targets {
		t.targets = append(t.targets, target.name)
	}
	rec, err := b.newRecorder(out, t, "servers")
	if err != nil {
		return nil, err
	}
	if err := b.buildMissing(ctx, dir, rec, b.targets, scenarioNames(b.scenarios)); err != nil {
		return nil, err
	}
	if err := b.measure(ctx, dir, rec); err != nil {
		return nil, errors.Join(append(rec.failed, err)...)
	}
	return rec, rec.end()
}

// runClusters measures clusters.
func (b *bench) runClusters(ctx context.Context, out io.Writer, dir string) (*recorder, error) {
	if err := describeLink(ctx, out); err != nil {
		return nil, err
	}
	rec, err := b.newRecorder(out, b.newClusterTable(), "clusters")
	if err != nil {
		return nil, err
	}
	if err := b.buildMissing(ctx, dir, rec, b.members(), trialNames(b.trials)); err != nil {
		return nil, err
	}
	if err := b.measureClusters(ctx, dir, rec); err != nil {
		return nil, errors.Join(append(rec.failed, err)...)
	}
	return rec, rec.end()
}

// buildMissing builds the targets, unless all rows were measured earlier.
func (b *bench) buildMissing(ctx context.Context, dir string, rec *recorder, list []*target, names []string) error {
	for _, name := range names {
		if _, found := rec.journal.row(name); !found {
			return build(ctx, dir, list, b.say)
		}
	}
	return nil
}

func scenarioNames(list []scenario) (names []string) {
	for _, s := range list {
		names = append(names, s.name)
	}
	return names
}

func trialNames(list []trial) (names []string) {
	for _, r := range list {
		names = append(names, r.name)
	}
	return names
}

// measure runs every scenario. Rounds of the targets alternate, so that a slow moment of the machine hits
// all of them alike.
func (b *bench) measure(ctx context.Context, dir string, rec *recorder) error {
	for i, s := range b.scenarios {
		err := rec.row(ctx, s.name, func(add func(string, figure)) error {
			var failed []error
			for round := range max(s.rounds, 1) {
				for _, target := range b.targets {
					if target.bare && !s.onBare || target.synced && !s.writes {
						continue
					}
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					b.say.line("%d/%d %s: %s, round %d of %d", i+1, len(b.scenarios), s.name, target.name, round+1, max(s.rounds, 1))
					figures, err := b.once(ctx, dir, s, target)
					if err != nil {
						failed = append(failed, fmt.Errorf("%s: %s: %w", s.name, target.name, err))
					}
					for _, f := range figures {
						add(target.name, f)
					}
				}
			}
			return errors.Join(failed...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// once runs one scenario on a target that is started for it and ended after it.
func (b *bench) once(ctx context.Context, dir string, s scenario, target *target) (figures []figure, err error) {
	ctx, cancel := context.WithTimeout(ctx, scenarioLimit)
	defer cancel()
	server, err := target.start(ctx, dir)
	if err != nil {
		return nil, err
	}
	figures, err = s.run(ctx, server, b.size)
	err = errors.Join(err, server.stop())
	b.noise.servers.Add(int64(server.cpuTime()))
	if err != nil {
		return nil, err
	}
	return figures, nil
}
