package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// startsName is the row of programs that start, do next to nothing, and end.
const startsName = "a program, from its start to its end"

// The columns of -starts. The reference is flock.
const (
	startsFlock   = "flock"
	startsRun     = "leasekeeper run"
	startsVersion = "leasekeeper version"
	startsEmpty   = "empty Go program"
)

// startsColumns lists the columns in the order of the table.
var startsColumns = []string{startsFlock, startsRun, startsVersion, startsEmpty}

// A starter is a command line that is run again and again.
type starter struct {
	column string
	args   []string
	env    []string // nil means that of this process
}

// startTimes are the times of all runs of a command line.
type startTimes struct {
	took []time.Duration // from just before the start until the process has ended
	used []time.Duration // on a core, by the process and the children that it waited for
}

// measureStarts prints how long `leasekeeper run` takes next to flock, and what any Go program takes.
func (b *bench) measureStarts(ctx context.Context, out io.Writer, dir string) error {
	t := &table{reference: startsFlock, nameWidth: serverWidth}
	for _, column := range startsColumns {
		if b.aimed.MatchString(column) {
			t.targets = append(t.targets, column)
		}
	}
	rec, err := b.newRecorder(out, t, "starts")
	if err != nil {
		return err
	}
	err = rec.row(ctx, startsName, func(add func(string, figure)) error {
		list, err := b.starters(ctx, dir)
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(s starter) bool { return !slices.Contains(t.targets, s.column) })
		all, err := b.alternate(ctx, list)
		if err != nil {
			return err
		}
		for i, s := range list {
			add(s.column, figure{name: "p50", unit: "ms", value: milliseconds(percentile(all[i].took, 50)), goal: "20"})
			add(s.column, figure{name: "p99", unit: "ms", value: milliseconds(percentile(all[i].took, 99))})
			add(s.column, figure{name: "time on a core, p50", unit: "ms", value: milliseconds(percentile(all[i].used, 50))})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return rec.end()
}

// starters builds the programs and returns the command lines. The names of `leasekeeper run` are in its default store, in a
// state directory of their own.
func (b *bench) starters(ctx context.Context, dir string) ([]starter, error) {
	flock, err := exec.LookPath("flock")
	if err != nil {
		return nil, errors.New("flock is not installed: install util-linux, or leave it out with -target")
	}
	ours := b.built
	if ours == "" {
		ours = filepath.Join(dir, "leasekeeper")
		if err := b.buildReleased(ctx, ours, "..", "./cmd/leasekeeper"); err != nil {
			return nil, err
		}
	}
	source, empty := filepath.Join(dir, "empty.go"), filepath.Join(dir, "empty")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return nil, err
	}
	if err := b.buildReleased(ctx, empty, ".", source); err != nil {
		return nil, err
	}
	state := append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"), "LEASEKEEPER_STORE=")
	return []starter{
		{startsFlock, []string{flock, filepath.Join(dir, "lock"), "true"}, nil},
		{startsRun, []string{ours, "run", "bench", "--", "true"}, state},
		{startsVersion, []string{ours, "version"}, state},
		{startsEmpty, []string{empty}, nil},
	}, nil
}

// buildReleased compiles a program as a release does: static, stripped, and without paths of this machine.
func (b *bench) buildReleased(ctx context.Context, path, source, pkg string) error {
	b.say.line("building %s", filepath.Base(path))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=v0.0.0", "-o", path, pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", path, err, out)
	}
	return nil
}

// alternate runs each command line that many times, in turns, and returns the times of its runs, by command line. The first
// turn is not counted: it makes files, and reads the programs from the disk. Every turn begins with another one.
func (b *bench) alternate(ctx context.Context, list []starter) ([]startTimes, error) {
	all := make([]startTimes, len(list))
	for turn := range b.size.starts + 1 {
		b.say.line("%s: turn %d of %d", startsName, turn, b.size.starts)
		for i := range list {
			i = (i + turn) % len(list)
			took, used, err := startOnce(ctx, list[i])
			if err != nil {
				return nil, err
			}
			b.noise.servers.Add(int64(used)) // it is no other process
			if turn > 0 {
				all[i].took, all[i].used = append(all[i].took, took), append(all[i].used, used)
			}
		}
	}
	return all, nil
}

// startOnce runs a command line, and returns how long it took and how much time on a core it used.
func startOnce(ctx context.Context, s starter) (took, used time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.args[0], s.args[1:]...)
	cmd.Env, cmd.Stderr = s.env, os.Stderr
	began := time.Now()
	err = cmd.Run()
	took = time.Since(began)
	if err != nil {
		return 0, 0, fmt.Errorf("%q: %w", s.args, err)
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
