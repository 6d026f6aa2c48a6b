//go:build linux

package chaos

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// load runs clients on the cluster, and records what they saw.
type load struct {
	t         testing.TB
	g         *cluster
	stop      chan struct{}
	running   sync.WaitGroup
	registers [3]*register
	names     *tenures
	leases    leaseTally
	tally     tally
}

// tally counts calls for the log of the test.
type tally struct {
	calls, retries, refused atomic.Int64

	mu      sync.Mutex
	longest time.Duration
	which   string // what the longest call was
}

func startLoad(t testing.TB, g *cluster) *load {
	l := &load{t: t, g: g, stop: make(chan struct{}), names: newTenures()}
	for i := range l.registers {
		r := &register{key: "register/" + name(i)}
		l.registers[i] = r
		l.running.Go(func() { l.write(r, i) })
	}
	for i := range g.reach {
		l.running.Go(func() { l.read(i) })
		l.running.Go(func() { l.holdLeases(i) })
	}
	for i := range keepers {
		l.running.Go(func() { l.keepNames(i) })
	}
	return l
}

// end stops the clients, and checks what only the whole run shows. hadTime means that they ran long enough to have done much.
func (l *load) end(hadTime bool) {
	close(l.stop)
	l.running.Wait()
	l.finalReads()
	l.names.judge(l.t, hadTime)
	var acked int64
	for _, r := range l.registers {
		acked += r.acked.Load()
	}
	c := &l.tally
	l.t.Logf("%d writes acknowledged; %d calls, %d attempts repeated elsewhere, %d reads refused; the longest call, %s, took %v",
		acked, c.calls.Load(), c.retries.Load(), c.refused.Load(), c.which, c.longest.Round(time.Millisecond))
	l.leases.report(l.t, hadTime)
}

// over reports whether the clients must stop.
func (l *load) over() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// pause waits between two calls, so that the clients do not saturate the machine.
func (l *load) pause(d time.Duration) {
	select {
	case <-l.stop:
	case <-time.After(d):
	}
}

// lasted counts a call that has ended.
func (l *load) lasted(what string, since time.Time) {
	took := time.Since(since)
	c := &l.tally
	c.calls.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if took > c.longest {
		c.longest, c.which = took, what
	}
}

// call tries one endpoint after the other, beginning with first, until one succeeds. It fails the test after callLimit, or
// on an error that no fault explains.
func (l *load) call(what string, first int, try func(ctx context.Context, s stubs) error) bool {
	began := time.Now()
	defer l.lasted(what, began)
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	var failures []string
	for i := first; ; i++ {
		attempt, cancel := context.WithTimeout(ctx, attemptLimit)
		at := i % l.g.reach
		err := try(attempt, l.g.members[at].stubs)
		cancel()
		if err == nil {
			return true
		}
		failures = append(failures, name(at)+" after "+time.Since(began).Round(time.Millisecond).String()+": "+err.Error())
		if !isTransient(err) {
			l.t.Errorf("%s: %v", what, err)
			return false
		}
		if ctx.Err() != nil {
			l.t.Errorf("%s has not ended within %v:\n%s", what, callLimit, strings.Join(failures, "\n"))
			return false
		}
		l.tally.retries.Add(1)
		time.Sleep(time.Duration(5+rand.IntN(20)) * time.Millisecond)
	}
}

// isTransient reports whether a fault explains an error.
func isTransient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted:
		return true
	}
	return false
}
