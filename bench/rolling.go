package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// stepLimit bounds how long it may take to restart one member, or all of them at once.
	stepLimit = time.Minute
	// restartWait is longer than a member of ours neither votes nor campaigns after its start. The next step begins after
	// that, so that each shows what it waits for itself.
	restartWait = time.Second
)

// step is one restart of one member.
type step struct {
	led                  bool          // it was the leader
	ending, serving, gap time.Duration // see rollingRestart
}

// rollingRestart restarts one member after the other, again and again. It measures for each step:
//
//   - the time from SIGTERM to the end of the member,
//   - the time from its start to its first answer to a linearizable read,
//   - the longest time without an acknowledged put through the other members.
func rollingRestart(ctx context.Context, c *cluster, z size, say progress) ([]figure, error) {
	var steps []step
	for round := range z.restarts {
		for i := range c.members {
			say.line("%s: rolling restart %d of %d, member %s", c.members[0].name, round+1, z.restarts, memberNames[i])
			s, err := c.restartOne(ctx, i)
			if err != nil {
				return nil, fmt.Errorf("restart %d of member %s: %w", round+1, memberNames[i], err)
			}
			steps = append(steps, s)
			pause(ctx, restartWait)
		}
	}
	return stepFigures(steps)
}

func stepFigures(steps []step) ([]figure, error) {
	var ending, serving, whole, gapped, gapLed []time.Duration
	for _, s := range steps {
		ending, serving, whole = append(ending, s.ending), append(serving, s.serving), append(whole, s.ending+s.serving)
		if s.led {
			gapLed = append(gapLed, s.gap)
		} else {
			gapped = append(gapped, s.gap)
		}
	}
	shown := []float64{50, 100}
	var all []figure
	for _, part := range []struct {
		name string
		took []time.Duration
		goal string
	}{
		{"step, SIGTERM to first linearizable read, ", whole, "300"},
		{"SIGTERM to its end, ", ending, ""},
		{"its start to first linearizable read, ", serving, ""},
		{"no put acknowledged, a follower restarts, ", gapped, ""},
		{"no put acknowledged, the leader restarts, ", gapLed, ""},
	} {
		if len(part.took) == 0 { // leaders move, so a short run may restart none of them
			continue
		}
		figures, err := distribution(part.name, part.took, shown, part.goal)
		if err != nil {
			return nil, err
		}
		all = append(all, figures...)
	}
	return all, nil
}

// restartOne stops a member by SIGTERM and starts it again on its directory.
func (c *cluster) restartOne(ctx context.Context, i int) (s step, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	leader, err := c.awaitLeader(ctx)
	if err != nil {
		return s, err
	}
	s.led = leader == i
	gaps := c.watchGaps(ctx, slices.Delete(slices.Clone(c.conns), i, i+1))
	began := time.Now()
	if err := c.members[i].end(); err != nil {
		return s, errors.Join(err, gaps.failed())
	}
	s.ending = time.Since(began)
	began = time.Now()
	err = c.members[i].launch()
	if err == nil {
		err = c.members[i].awaitReady(ctx, stepLimit)
	}
	s.serving = time.Since(began)
	s.gap = gaps.end()
	return s, errors.Join(err, gaps.failed())
}

// restartAll restarts all members at once, again and again, and measures how long it takes from when the last was started
// until all of them answer a linearizable read.
func restartAll(ctx context.Context, c *cluster, z size, say progress) ([]figure, error) {
	var took []time.Duration
	for round := range z.restarts {
		say.line("%s: restart %d of %d of all members", c.members[0].name, round+1, z.restarts)
		d, err := c.restartTogether(ctx)
		if err != nil {
			return nil, fmt.Errorf("restart %d of all: %w", round+1, err)
		}
		took = append(took, d)
	}
	return distribution("start to first linearizable read at all, ", took, []float64{50, 100})
}

func (c *cluster) restartTogether(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	if _, err := c.awaitLeader(ctx); err != nil {
		return 0, err
	}
	for _, s := range c.members {
		s.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, s := range c.members {
		if err := s.end(); err != nil {
			return 0, err
		}
	}
	for _, s := range c.members {
		if err := s.launch(); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	for _, s := range c.members {
		if err := s.awaitReady(ctx, stepLimit); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// end asks the process to end, and keeps its directory.
func (s *server) end() error {
	s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.exited:
		s.before = s.ownTime()
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("%s did not end within %v of SIGTERM; it wrote:\n%s", s.name, stopLimit, s.lastWords())
	}
}

// gaps is the longest time without an acknowledged put, measured by two clients that put one after the other.
type gaps struct {
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	last    time.Time
	longest time.Duration
	puts    int
}

func (c *cluster) watchGaps(ctx context.Context, conns connections) *gaps {
	ctx, stop := context.WithCancel(ctx)
	g := &gaps{stop: stop, last: time.Now()}
	for i, conn := range conns {
		g.clients.Go(func() {
			for ctx.Err() == nil {
				attempt, cancel := context.WithTimeout(ctx, writeLimit)
				_, err := pb.NewKVClient(conn).Put(attempt, &pb.PutRequest{Key: fmt.Appendf(nil, "gap%d", i)})
				cancel()
				if err == nil {
					g.put()
				}
				pause(ctx, 2*time.Millisecond)
			}
		})
	}
	return g
}

func (g *gaps) put() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.longest, g.last, g.puts = max(g.longest, now.Sub(g.last)), now, g.puts+1
}

// end ends the clients and returns the longest gap.
func (g *gaps) end() time.Duration {
	g.stop()
	g.clients.Wait()
	return max(g.longest, time.Since(g.last))
}

// failed ends the clients, and says so if no put was acknowledged at all.
func (g *gaps) failed() error {
	g.end()
	if g.puts == 0 {
		return errors.New("no put was acknowledged through the other members")
	}
	return nil
}
