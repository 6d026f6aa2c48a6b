package main

import (
	"context"
	"fmt"
	"time"
)

// keptGoal is how much of a core it may take to keep names, in percent, of the database and of the program each.
const keptGoal = "2"

// keptName is the name of the task that measures what it costs to keep names.
func keptName(names int) string {
	return fmt.Sprintf("%s names kept by one program", thousands(float64(names)))
}

// keepInDatabase measures how much of a core it takes that one program keeps names and does nothing else.
func keepInDatabase(goals bool) func(context.Context, way, site, size) ([]figure, error) {
	return func(ctx context.Context, w way, at site, z size) ([]figure, error) {
		if !w.keeps {
			return nil, nil
		}
		opened, err := w.open(ctx, at.place, plan{1, z.idleTTL})
		if err != nil {
			return nil, err
		}
		defer opened.close()
		held, err := holdAll(ctx, opened, 0, z.idleOne)
		if err != nil {
			return nil, err
		}
		turn := z.idleTTL / renewedAt
		pause(ctx, 2*turn) // until those are renewed together that are
		server, client, start := at.used(), selfTime(), time.Now()
		pause(ctx, time.Duration(z.idleTurns)*turn)
		server, client = at.used()-server, selfTime()-client
		took := time.Since(start)
		if err := checkAll(ctx, held); err != nil {
			return nil, err
		}
		goal := ""
		if goals {
			goal = keptGoal
		}
		ofCore := func(name string, used time.Duration) figure {
			return figure{name: name, unit: "%", value: used.Seconds() / took.Seconds() * 100, goal: goal}
		}
		figures := []figure{ofCore("client's share of a core", client)}
		if server > 0 {
			figures = append([]figure{ofCore("server's share of a core", server)}, figures...)
		}
		return figures, nil
	}
}
