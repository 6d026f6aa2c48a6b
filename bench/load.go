package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// connections are used in turn by the workers of a load.
type connections []*grpc.ClientConn

func dial(addr string, n int) (connections, error) { return dialFrom(nil, addr, n) }

// dial connects to the server as the user that loads it, if it has users.
func (s *server) dial(n int) (connections, error) {
	if s.token == "" {
		return dial(s.addr, n)
	}
	return dialFrom(nil, s.addr, n, grpc.WithPerRPCCredentials(bearer(s.token)))
}

// dialFrom is dial from an address of this machine; nil leaves that to the system.
func dialFrom(from net.Addr, addr string, n int, options ...grpc.DialOption) (connections, error) {
	dialer := net.Dialer{LocalAddr: from}
	fast := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 20 * time.Millisecond}
	var conns connections
	for range n {
		conn, err := grpc.NewClient("passthrough:///"+addr, append(options,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", addr)
			}),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: fast, MinConnectTimeout: time.Second}))...)
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

// each calls do for every i below n, with a number of calls in flight.
func each(ctx context.Context, conns connections, inFlight, n int,
	do func(ctx context.Context, conn *grpc.ClientConn, i int) error) error {
	return spread(ctx, inFlight, n, func(ctx context.Context, worker, i int) error {
		return do(ctx, conns.of(worker), i)
	})
}

// spread is each, for calls that need no connection.
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

// pace holds the counted work of a span, and the processor time that the server and this process took for it.
type pace struct {
	done                 int64
	took, server, client time.Duration
}

// rate is pacing for measurements of the server only: how often per second its workers counted, and how much processor time
// the server took for each count.
func rate(ctx context.Context, s *server, z size, workers int, goal string,
	work func(ctx context.Context, worker int, count *atomic.Int64) error) ([]figure, error) {
	p, err := pacing(ctx, s.cpuTime, z, workers, work)
	if err != nil {
		return nil, err
	}
	return p.figures(goal), nil
}

func (p pace) figures(goal string) []figure {
	figures := []figure{{name: "rate", unit: "1/s", value: float64(p.done) / p.took.Seconds(), goal: goal}}
	return append(figures, p.each("server's time on a core for each", p.server)...)
}

// withClient is figures, and what the client took.
func (p pace) withClient(goal string) []figure {
	return append(p.figures(goal), p.each("client's time on a core for each", p.client)...)
}

// each is empty if the time is not known.
func (p pace) each(name string, used time.Duration) []figure {
	if used <= 0 || p.done <= 0 {
		return nil
	}
	return []figure{{name: name, unit: "us", value: float64(used) / float64(time.Microsecond) / float64(p.done)}}
}

// pacing runs workers until the time to warm up and then the span have passed, and looks at the span. A worker
// is a loop that counts its work until its context ends. used is how much time on a core the server has
// used so far.
func pacing(ctx context.Context, used func() time.Duration, z size, workers int,
	work func(ctx context.Context, worker int, count *atomic.Int64) error) (p pace, err error) {
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
	before, server, client, start := total(), used(), selfTime(), time.Now()
	pause(g.ctx, z.span)
	p.done, p.took = total()-before, time.Since(start)
	p.server, p.client = used()-server, selfTime()-client
	g.cancel(errMeasured)
	if err := g.wait(); !errors.Is(err, errMeasured) {
		return p, err
	}
	return p, nil
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
