package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// runsName is the task of many runs of the command under one name.
const runsName = "runs of a command under one name"

// program returns our command. It is built when it is first needed, unless it was given.
func (s *stage) program(ctx context.Context, say progress) (string, error) {
	if s.built == "" {
		ours := targets()[1:2]
		if err := build(ctx, s.dir, ours, say); err != nil {
			return "", err
		}
		s.built = ours[0].binary
	}
	return s.built, nil
}

// measureRuns measures how long a number of `leasekeeper run` takes that all want one name at once, and that many, one
// after the other. A queue that costs nothing makes no difference.
func measureRuns(ctx context.Context, w way, at site, z size) ([]figure, error) {
	if w.store == nil {
		return nil, nil
	}
	program, err := at.program(ctx)
	if err != nil {
		return nil, err
	}
	busy := filepath.Join(filepath.Dir(at.place), "busy")
	run := func(times int) error {
		for range times {
			// Two that hold the name at the same moment cannot both make the directory.
			cmd := exec.CommandContext(ctx, program, "run", "--store", w.store(at.place), contendedName, "--", "sh", "-c", `mkdir "$0" && rmdir "$0"`, busy)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", program, err, out)
			}
		}
		return nil
	}
	if err := run(1); err != nil { // it makes the tables
		return nil, err
	}
	began := time.Now()
	if err := run(z.runs); err != nil {
		return nil, err
	}
	alone := time.Since(began)
	failed := make([]error, z.runs)
	var group sync.WaitGroup
	began = time.Now()
	for i := range failed {
		group.Go(func() { failed[i] = run(1) })
	}
	group.Wait()
	together := time.Since(began)
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	of := fmt.Sprintf("%d ", z.runs)
	return []figure{
		{name: of + "one after the other", unit: "ms", value: milliseconds(alone)},
		{name: of + "at once", unit: "ms", value: milliseconds(together)},
		{name: "at once, of one after the other", unit: "", value: float64(together) / float64(alone), goal: "1.3"},
	}, nil
}
