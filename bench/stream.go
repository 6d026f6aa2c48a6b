package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// fillInFlight is small, so that few puts share an entry of the log.
const fillInFlight = 8

// putsWhileStreaming measures how long puts take while a member receives the whole state with very many leases: from its
// start until it answers a linearizable read. The member was away while the state came about, so that the log no longer has
// what it lacks.
func putsWhileStreaming(ctx context.Context, c *cluster, z size, say progress) ([]figure, error) {
	leader, err := c.awaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	away := (leader + 1) % len(c.members)
	c.members[away].kill()
	conns, err := dial(c.members[leader].addr, rateConnections)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	if err := fillLog(ctx, conns, z, say); err != nil {
		return nil, err
	}
	pause(ctx, z.settle)

	quiet, err := putsUntil(ctx, conns, func(ctx context.Context) error {
		pause(ctx, z.warm+z.span)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var began time.Time
	var took time.Duration
	busy, err := putsUntil(ctx, conns, func(ctx context.Context) error {
		pause(ctx, z.warm)
		began = time.Now()
		if err := c.members[away].launch(); err != nil {
			return err
		}
		err := c.members[away].awaitReady(ctx, restartLimit)
		took = time.Since(began)
		pause(ctx, leastWindow-took)
		return err
	})
	if err != nil {
		return nil, err
	}
	if refused, why := refusals(slices.Concat(quiet, busy)); refused > 0 {
		return nil, why
	}
	if now, err := c.awaitLeader(ctx); err != nil || now != leader {
		return nil, errors.Join(fmt.Errorf("%s was not the leader to the end", memberNames[leader]), err)
	}
	return streamFigures(within(quiet, quiet[0].due.Add(z.warm), z.span), within(busy, began, max(took, leastWindow)), took)
}

// fillLog grants leases, and puts keys until the log has grown enough.
func fillLog(ctx context.Context, conns connections, z size, say progress) error {
	index := func() (uint64, error) {
		r, err := pb.NewMaintenanceClient(conns.of(0)).Status(ctx, &pb.StatusRequest{})
		return r.GetRaftIndex(), err
	}
	before, err := index()
	if err != nil {
		return err
	}
	say.line("granting %s leases", thousands(float64(z.streamed)))
	if err := grantNumbered(ctx, conns, manyInFlight, 0, z.streamed); err != nil {
		return err
	}
	for {
		now, err := index()
		if err != nil || now-before >= uint64(z.cutLog) {
			return err
		}
		say.line("the log has grown by %d of %d entries", now-before, z.cutLog)
		if err := each(ctx, conns, fillInFlight, 100*fillInFlight, put); err != nil {
			return err
		}
	}
}

func streamFigures(quiet, busy []time.Duration, took time.Duration) ([]figure, error) {
	if len(quiet) == 0 || len(busy) == 0 {
		return nil, errNothing
	}
	before, during := percentile(quiet, 99), percentile(busy, 99)
	ms := func(name string, d time.Duration) figure {
		return figure{name: name, unit: "ms", value: milliseconds(d)}
	}
	return []figure{
		ms("p50", percentile(busy, 50)),
		ms("p99", during),
		ms("max", percentile(busy, 100)),
		ms("p99 before, while nothing streams", before),
		{name: "p99 as a multiple of that", unit: "x", value: float64(during) / float64(before), goal: "2"},
		ms("start of the member to its first linearizable read", took),
	}, nil
}
