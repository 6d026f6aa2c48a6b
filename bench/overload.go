package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper"
)

// The overload scenario has one keeper hold many names while processes that only take time on a core crowd the machine
// and others claim and release names. It counts the leases that are lost; none may be.

const (
	// overloadSpan is how long a round lasts.
	overloadSpan = 5 * time.Minute
	// overloadTTL is that of all leases.
	overloadTTL = 15 * time.Second
	// overloadHold is how long an acquirer holds a name.
	overloadHold = 10 * time.Millisecond
	// overloadLook is the time between two checks of the remaining time of all leases.
	overloadLook = 250 * time.Millisecond
	// overloadAcquirers is the number of programs that claim and release names besides the keeper.
	overloadAcquirers = 64
)

// busyArgument makes this program a busy loop that ends with its input.
const busyArgument = "busy-loop-of-the-overload"

// An overload is how much of everything there is.
type overload struct {
	names, loops, rounds int
	ttl, span            time.Duration
}

var (
	fullOverload  = overload{names: 10_000, loops: 16, rounds: 3, ttl: overloadTTL, span: overloadSpan}
	quickOverload = overload{names: 200, loops: 2, rounds: 1, ttl: 6 * time.Second, span: 4 * time.Second}
)

// An overloadStore is where the names are held.
type overloadStore struct {
	name string
	// open makes an empty store, and returns its URL and what ends it.
	open func(ctx context.Context) (url string, end func() error, err error)
}

// overloadStores are those that are wanted. Nothing is started before one is opened.
func (b *bench) overloadStores(s *stage, dir string) (stores []overloadStore) {
	for _, d := range databaseList() {
		for _, w := range d.ways {
			if w.store == nil || d.slow {
				continue
			}
			stores = append(stores, overloadStore{w.name, func(ctx context.Context) (string, func() error, error) {
				if d.prepare != nil {
					if err := d.prepare(ctx, s, b.say); err != nil {
						return "", nil, err
					}
				}
				place, err := d.place(s)
				return w.store(place), func() error { return nil }, err
			}})
		}
	}
	stores = append(stores, overloadStore{"keeper on our server", func(ctx context.Context) (string, func() error, error) {
		ours := slices.DeleteFunc(targets(), func(t *target) bool { return t.name != "leasekeeper" })
		if ours[0].binary = b.built; b.built == "" {
			if err := build(ctx, dir, ours, b.say); err != nil {
				return "", nil, err
			}
			b.built = ours[0].binary
		}
		server, err := ours[0].start(ctx, dir)
		if err != nil {
			return "", nil, err
		}
		return "leasekeeper://" + server.addr, server.stop, nil
	}})
	return slices.DeleteFunc(stores, func(s overloadStore) bool { return !b.aimed.MatchString(s.name) })
}

// overloads runs every round on every store, and prints the figures. The error names every goal that was missed.
func (b *bench) overloads(ctx context.Context, out io.Writer, dir string) error {
	s, err := newStage(dir)
	if err != nil {
		return err
	}
	defer s.end()
	var failed []error
	for _, store := range b.overloadStores(s, dir) {
		for round := range b.overload.rounds {
			p := &phase{attack: attack{name: fmt.Sprintf("%s, round %d of %d", store.name, round+1, b.overload.rounds)}, out: out}
			b.say.line("overload: %s", p.name)
			if err := b.overloadOnce(ctx, p, store); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
			}
			failed = append(failed, p.missed...)
			if ctx.Err() != nil {
				return errors.Join(failed...)
			}
		}
	}
	return errors.Join(failed...)
}

func (b *bench) overloadOnce(ctx context.Context, p *phase, store overloadStore) (err error) {
	o := b.overload
	ctx, cancel := context.WithTimeout(ctx, scenarioLimit+o.span)
	defer cancel()
	url, end, err := store.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	holder, err := overloadKeeper(ctx, url, o.ttl)
	if err != nil {
		return err
	}
	defer closeOverloaded(holder)
	claimer, err := overloadKeeper(ctx, url, o.ttl)
	if err != nil {
		return err
	}
	defer closeOverloaded(claimer)
	leases, err := holdForOverload(ctx, holder, o.names)
	if err != nil {
		return err
	}
	stop, err := startLoops(ctx, o.loops)
	if err != nil {
		return err
	}
	defer stop()
	span, done := context.WithTimeout(ctx, o.span)
	defer done()
	var claims acquired
	var all sync.WaitGroup
	for i := range overloadAcquirers {
		all.Go(func() { claims.run(span, claimer, fmt.Sprint("claimed/", i)) })
	}
	least := leastLeft(span, leases, o.ttl)
	lost, why := lostOf(leases) // before the loops end
	stop()
	all.Wait()
	b.say.clear()
	fmt.Fprintf(p.out, "\n%s: %d names, %d busy loops, %d acquirers, TTL %v, %v\n", p.name, o.names, o.loops, overloadAcquirers, o.ttl, o.span)
	p.show("leases lost", float64(lost), "", 0)
	p.show("least that was left of a lease", least.Seconds(), "s", -1)
	claims.show(p, o.span)
	return why
}

// overloadKeeper returns a keeper without a log; lost leases are counted instead.
func overloadKeeper(ctx context.Context, url string, ttl time.Duration) (*leasekeeper.Keeper, error) {
	return leasekeeper.Open(ctx, url, leasekeeper.WithTTL(ttl), leasekeeper.WithLogger(slog.New(slog.DiscardHandler)))
}

// closeOverloaded closes a keeper without releasing its leases, because the store is deleted.
func closeOverloaded(k *leasekeeper.Keeper) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	_ = k.Shutdown(ctx)
}

// holdForOverload acquires all names before the machine is crowded.
func holdForOverload(ctx context.Context, k *leasekeeper.Keeper, names int) ([]*leasekeeper.Lease, error) {
	leases := make([]*leasekeeper.Lease, names)
	g := newGroup(ctx)
	var next atomic.Int64
	for range overloadAcquirers {
		g.run(func(ctx context.Context) error {
			for i := next.Add(1) - 1; i < int64(names); i = next.Add(1) - 1 {
				l, err := k.Acquire(ctx, fmt.Sprintf("held/%05d", i))
				if err != nil {
					return err
				}
				leases[i] = l
			}
			return nil
		})
	}
	return leases, g.wait()
}

// leastLeft returns the least time that was left of any lease whenever it looked, until ctx ends.
func leastLeft(ctx context.Context, leases []*leasekeeper.Lease, most time.Duration) time.Duration {
	least := most
	for ctx.Err() == nil {
		for _, l := range leases {
			least = min(least, l.Remaining())
		}
		pause(ctx, overloadLook)
	}
	return least
}

// lostOf counts the leases that are lost, and returns why one of them is.
func lostOf(leases []*leasekeeper.Lease) (n int, why error) {
	for _, l := range leases {
		if err := l.Check(); err != nil {
			n, why = n+1, err
		}
	}
	return n, why
}

// acquired counts the work of acquirers.
type acquired struct {
	mu     sync.Mutex
	took   []time.Duration
	failed int
	why    error // one of them
}

// run acquires and releases a name until ctx ends.
func (a *acquired) run(ctx context.Context, k *leasekeeper.Keeper, name string) {
	for ctx.Err() == nil {
		began := time.Now()
		l, err := k.Acquire(ctx, name)
		took := time.Since(began)
		if err == nil {
			pause(ctx, overloadHold)
			err = l.Release(context.WithoutCancel(ctx))
		}
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		if a.took = append(a.took, took); err != nil {
			a.failed, a.why = a.failed+1, err
		}
		a.mu.Unlock()
	}
}

func (a *acquired) show(p *phase, span time.Duration) {
	p.show("claims", float64(len(a.took))/span.Seconds(), "1/s", -1)
	if len(a.took) > 0 {
		p.show("claims, p99", milliseconds(percentile(a.took, 99)), "ms", -1)
		p.show("claims, longest", milliseconds(slices.Max(a.took)), "ms", -1)
	}
	p.show("claims or releases that failed", float64(a.failed), "", -1)
	if a.why != nil {
		fmt.Fprintf(p.out, "  one of them: %v\n", a.why)
	}
}

// startLoops starts processes that only take time on a core. They end with stop, and with this process.
func startLoops(ctx context.Context, n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var loops []*exec.Cmd
	stop = sync.OnceFunc(func() {
		for _, cmd := range loops {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for range n {
		cmd := exec.CommandContext(ctx, self, busyArgument)
		if _, err := cmd.StdinPipe(); err != nil { // which ends with this process
			stop()
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		loops = append(loops, cmd)
	}
	return stop, nil
}

// spin takes time on a core until its input ends.
func spin(in io.Reader) {
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in)
		ended.Store(true)
	}()
	for !ended.Load() {
	}
}
