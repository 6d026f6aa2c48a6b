package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// apart is by how much a message between members is delayed where that is said.
const apart = 5 * time.Millisecond

// A setup is a target with a number of members.
type setup struct {
	name string
	*target
	members int
}

// alone is one member of ours. Some rows require that a cluster is as fast.
const alone = "alone"

func setups() (list []setup) {
	for _, t := range targets() {
		if t.joined != nil {
			list = append(list, setup{t.name, t, len(memberNames)})
		}
		if t.name == "leasekeeper" {
			list = append(list, setup{alone, t, 1})
		}
	}
	return list
}

// A trial is a load on a cluster, and its measurements.
type trial struct {
	name   string
	rounds int // how often it is repeated; the table shows the median
	// far says that it is done a second time with members that are apart.
	far bool
	// onAlone says that one member that is alone is measured too.
	onAlone bool
	// limit bounds it on one setup.
	limit time.Duration
	run   func(ctx context.Context, c *cluster, z size, say progress) ([]figure, error)
}

func trials(z size) []trial {
	list := []trial{
		{name: "grants at 512 in flight", far: true, run: onLeader(grants(manyInFlight, ""))},
		{name: "renewals, pipelined on 8 streams", far: true, onAlone: true, run: byFront(grantRenewed, renewalsOfGroup)},
		{name: "linearizable gets, one after the other", far: true, onAlone: true, run: byFront(putFew, getsOfGroup)},
		{name: "acquire and release a name, one after the other", far: true, onAlone: true, run: onLeader(locksOfGroup)},
	}
	for i := range list {
		list[i].rounds, list[i].limit = z.rounds, scenarioLimit
	}
	return append(list,
		trial{name: fmt.Sprintf("leader killed %d times", z.kills), far: true, rounds: 1, limit: scenarioLimit + time.Duration(z.kills)*killLimit, run: kills},
		trial{name: fmt.Sprintf("rolling restart, %d times", z.restarts), rounds: 1, limit: scenarioLimit + time.Duration(z.restarts*len(memberNames))*stepLimit, run: rollingRestart},
		trial{name: fmt.Sprintf("all restarted at once, %d times", z.restarts), rounds: 1, limit: scenarioLimit + time.Duration(z.restarts)*stepLimit, run: restartAll},
		trial{name: fmt.Sprintf("puts, 1 000 a second, while %s leases expire", thousands(float64(z.expiring))),
			far: true, rounds: 1, limit: scenarioLimit, run: onLeader(putsWhileExpiring)},
		trial{name: fmt.Sprintf("puts, 1 000 a second, while the state of %s leases streams to a member", thousands(float64(z.streamed))),
			rounds: 1, limit: scenarioLimit, run: putsWhileStreaming})
}

// onLeader loads the leader of a cluster as if it was a server of its own.
func onLeader(run measured) func(context.Context, *cluster, size, progress) ([]figure, error) {
	return func(ctx context.Context, c *cluster, z size, _ progress) ([]figure, error) {
		leader, err := c.awaitLeader(ctx)
		if err != nil {
			return nil, err
		}
		return run(ctx, c.members[leader], z)
	}
}

// front is the member through which a client reaches the cluster.
type front struct {
	*server
	leads bool
}

// byFront prepares a load, and then runs it on the leader and, if there is one, on a follower. The leader must stay the same
// to the end, or the figures mean nothing.
func byFront(needs func(context.Context, *server) error, run func(context.Context, front, size) ([]figure, error)) func(context.Context, *cluster, size, progress) ([]figure, error) {
	return func(ctx context.Context, c *cluster, z size, _ progress) (all []figure, err error) {
		leader, err := c.awaitLeader(ctx)
		if err != nil {
			return nil, err
		}
		if err := needs(ctx, c.members[leader]); err != nil {
			return nil, err
		}
		fronts := []front{{server: c.members[leader], leads: true}}
		if others := c.others(leader); len(others) > 0 {
			fronts = append(fronts, front{server: others[0]})
		}
		for _, f := range fronts {
			figures, err := run(ctx, f, z)
			if err != nil {
				return nil, err
			}
			prefix := "through a follower: "
			if f.leads {
				prefix = "through the leader: "
			}
			for _, figure := range figures {
				figure.name = prefix + figure.name
				all = append(all, figure)
			}
		}
		if now, err := c.awaitLeader(ctx); err != nil || now != leader {
			return nil, errors.Join(fmt.Errorf("%s was not the leader to the end", memberNames[leader]), err)
		}
		return all, nil
	}
}

// goalOf is for the leader only.
func (f front) goalOf(goal string) string {
	if f.leads {
		return goal
	}
	return ""
}

func renewalsOfGroup(ctx context.Context, f front, z size) ([]figure, error) {
	return renewingGranted(ctx, f.server, z, pipelineStreams, pipelineDepth, f.goalOf("as alone"))
}

// putFew puts as many keys as matter for reads that follow each other.
func putFew(ctx context.Context, s *server) error { return putKeys(ctx, s, fewKeys) }

func getsOfGroup(ctx context.Context, f front, z size) ([]figure, error) {
	took, err := getLatency(ctx, f.server, z)
	if err != nil {
		return nil, err
	}
	return distribution("", took, []float64{50, 99}, f.goalOf("as alone"))
}

func locksOfGroup(ctx context.Context, s *server, z size) ([]figure, error) {
	took, err := lockLatency(ctx, s, z)
	if err != nil {
		return nil, err
	}
	return distribution("", took, []float64{50, 99})
}

// clusterWidth is the width of the names of rows about clusters.
const clusterWidth = 68

// newClusterTable is the table of the chosen setups.
func (b *bench) newClusterTable() *table {
	t := &table{reference: reference, second: alone, nameWidth: clusterWidth}
	for _, s := range b.setups {
		t.targets = append(t.targets, s.name)
	}
	return t
}

// measureClusters runs every trial. Rounds of the setups alternate.
func (b *bench) measureClusters(ctx context.Context, dir string, rec *recorder) error {
	for i, r := range b.trials {
		err := rec.row(ctx, r.name, func(add func(string, figure)) error {
			var failed []error
			for round := range r.rounds {
				for _, s := range b.setups {
					if s.members == 1 && !r.onAlone {
						continue
					}
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					b.say.line("%d/%d %s: %s, round %d of %d", i+1, len(b.trials), r.name, s.name, round+1, r.rounds)
					figures, err := b.tryBoth(ctx, dir, r, s)
					if err != nil {
						failed = append(failed, fmt.Errorf("%s: %s: %w", r.name, s.name, err))
					}
					for _, f := range figures {
						add(s.name, f)
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

// tryBoth runs a trial near, unless only the other is asked for, and, where that is to be, far.
func (b *bench) tryBoth(ctx context.Context, dir string, r trial, s setup) (figures []figure, err error) {
	if !b.apart {
		figures, err = b.try(ctx, dir, r, s, 0)
	}
	if err != nil || !r.far || s.members == 1 {
		return figures, err
	}
	far, err := b.try(ctx, dir, r, s, apart)
	for _, f := range far {
		f.name = fmt.Sprintf("%d ms apart: %s", apart.Milliseconds(), f.name)
		figures = append(figures, f)
	}
	return figures, err
}

// try runs a trial on a cluster of its own. It returns the figures from before a failure too.
func (b *bench) try(ctx context.Context, dir string, r trial, s setup, delay time.Duration) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	c, err := startCluster(ctx, dir, s.target, s.members, delay)
	if err != nil {
		return nil, err
	}
	figures, err := r.run(ctx, c, b.size, b.say)
	err = errors.Join(err, c.stop())
	b.noise.servers.Add(int64(c.members[0].cpuTime()))
	return figures, err
}

// members are the targets that the setups run.
func (b *bench) members() (list []*target) {
	for _, s := range b.setups {
		if !slices.Contains(list, s.target) {
			list = append(list, s.target)
		}
	}
	return list
}

// describeLink prints how much the members are apart, as measured: a timer fires a little late.
func describeLink(ctx context.Context, w io.Writer) error {
	took, err := measureLink(ctx, apart)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%-12s there and back p50 %.2f ms, p99 %.2f ms\n", fmt.Sprintf("%d ms apart", apart.Milliseconds()),
		milliseconds(percentile(took, 50)), milliseconds(percentile(took, 99)))
	return err
}
