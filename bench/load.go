package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// connections are used in turn by the workers of a load.
type connections []*grpc.ClientConn

func dial(addr string, n int) (connections, error) {
	fast := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 20 * time.Millisecond}
	var conns connections
	for range n {
		conn, err := grpc.NewClient("passthrough:///"+addr,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: fast, MinConnectTimeout: time.Second}))
		if err != nil {
			conns.close()
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func (c connections) close() {
	for _, conn := range c {
		conn.Close()
	}
}

// of returns the connection for a worker.
func (c connections) of(worker int) *grpc.ClientConn { return c[worker%len(c)] }

// group runs workers until all have returned. The first error ends the others' context.
type group struct {
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

func (g *group) run(work func(ctx context.Context) error) {
	g.wg.Go(func() {
		if err := work(g.ctx); err != nil {
			g.cancel(err)
		}
	})
}

func (g *group) wait() error {
	g.wg.Wait()
	err := context.Cause(g.ctx)
	g.cancel(nil)
	return err
}

// each calls do for every i below n, with so many calls in flight.
func each(ctx context.Context, conns connections, inFlight, n int,
	do func(ctx context.Context, conn *grpc.ClientConn, i int) error) error {
	return spread(ctx, inFlight, n, func(ctx context.Context, worker, i int) error {
		return do(ctx, conns.of(worker), i)
	})
}

// spread is each for those who need no connection.
func spread(ctx context.Context, inFlight, n int, do func(ctx context.Context, worker, i int) error) error {
	var next atomic.Int64
	g := newGroup(ctx)
	for worker := range min(inFlight, n) {
		g.run(func(ctx context.Context) error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return nil
				}
				if err := do(ctx, worker, i); err != nil {
					return err
				}
			}
		})
	}
	return g.wait()
}

// errMeasured ends the workers of a rate when enough was measured.
var errMeasured = errors.New("measured")

// counter is one worker's, alone on its cache line.
type counter struct {
	n atomic.Int64
	_ [56]byte
}

// rate runs workers until the time to warm up and then the span have passed, and returns how often per
// second they counted during the span, and how much of a core the server took for each time. A worker is a
// loop that counts what it has done until its context ends.
func rate(ctx context.Context, s *server, z size, workers int, goal string,
	work func(ctx context.Context, worker int, count *atomic.Int64) error) ([]figure, error) {
	counters := make([]counter, workers)
	total := func() (sum int64) {
		for i := range counters {
			sum += counters[i].n.Load()
		}
		return sum
	}
	g := newGroup(ctx)
	for worker := range workers {
		g.run(func(ctx context.Context) error {
			err := work(ctx, worker, &counters[worker].n)
			if ctx.Err() != nil {
				return nil // whatever it says: it was ended
			}
			return err
		})
	}
	pause(g.ctx, z.warm)
	before, used, start := total(), s.cpuTime(), time.Now()
	pause(g.ctx, z.span)
	done, took := total()-before, time.Since(start)
	used = s.cpuTime() - used
	g.cancel(errMeasured)
	if err := g.wait(); !errors.Is(err, errMeasured) {
		return nil, err
	}
	figures := []figure{{name: "rate", unit: "1/s", value: float64(done) / took.Seconds(), goal: goal}}
	if used > 0 && done > 0 {
		each := float64(used) / float64(time.Microsecond) / float64(done)
		figures = append(figures, figure{name: "server's time on a core for each", unit: "us", value: each})
	}
	return figures, nil
}

// pause waits, or ends early with the context.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
