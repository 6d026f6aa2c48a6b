package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// putPace is the time from one put to the next while leases expire, which no answer holds up.
	putPace = time.Millisecond
	// putLimit bounds one of them.
	putLimit = time.Minute
	// leastWindow is how long puts are looked at, at least, however soon all leases have ended.
	leastWindow = time.Second
)

// A sample is a put: when it was to be sent, how long after that it was answered, and why it was refused.
type sample struct {
	due  time.Time
	took time.Duration
	err  error
}

// putsWhileExpiring measures how long puts take while very many leases end: from the first deadline until
// the last key is gone. A cluster may refuse some, and another row says how many. A server that is alone may not.
func putsWhileExpiring(ctx context.Context, s *server, z size) ([]figure, error) {
	return withCommonDeadline(ctx, s, z.expiring, z.expiringTTL,
		func(ctx context.Context, events <-chan gone, holdings []holding) ([]figure, error) {
			quiet, busy, err := putsAroundEnd(ctx, s, z, events, holdings)
			if err != nil {
				return nil, err
			}
			refused, why := refusals(slices.Concat(quiet, busy))
			if refused > 0 && len(s.fellows) == 0 {
				return nil, why
			}
			first, last := ends(holdings)
			deadline := first.sent.Add(first.ttl)
			took := last.gone.Sub(deadline)
			figures, err := busyFigures(
				within(quiet, quiet[0].due.Add(z.warm), z.span), within(busy, deadline, max(took, leastWindow)), took)
			if len(s.fellows) > 0 {
				figures = append(figures, figure{name: "refused", unit: "%", value: 100 * refused})
			}
			return figures, err
		})
}

// putsAroundEnd puts for a while before leases end, and then from shortly before their first deadline until all are
// gone.
func putsAroundEnd(ctx context.Context, s *server, z size, events <-chan gone, holdings []holding) (quiet, busy []sample, err error) {
	conns, err := dial(s.addr, rateConnections)
	if err != nil {
		return nil, nil, err
	}
	defer conns.close()
	quiet, err = putsUntil(ctx, conns, func(ctx context.Context) error {
		pause(ctx, z.warm+z.span)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	first, _ := ends(holdings)
	deadline := first.sent.Add(first.ttl)
	pause(ctx, time.Until(deadline.Add(-z.warm)))
	busy, err = putsUntil(ctx, conns, func(ctx context.Context) error {
		err := await(ctx, events, holdings, 0)
		pause(ctx, time.Until(deadline.Add(leastWindow)))
		return err
	})
	return quiet, busy, err
}

// refusals is which part of the puts was refused, and why one of them was.
func refusals(samples []sample) (part float64, why error) {
	refused := 0
	for _, s := range samples {
		if s.err != nil {
			refused, why = refused+1, s.err
		}
	}
	return float64(refused) / float64(max(len(samples), 1)), why
}

func busyFigures(quiet, busy []time.Duration, took time.Duration) ([]figure, error) {
	if len(quiet) == 0 || len(busy) == 0 {
		return nil, errors.New("no put was due while it was to be measured")
	}
	ms := func(name string, d time.Duration) figure {
		return figure{name: name, unit: "ms", value: milliseconds(d)}
	}
	return []figure{
		ms("p50", percentile(busy, 50)),
		ms("p99", percentile(busy, 99)),
		ms("max", percentile(busy, 100)),
		ms("p99 before, while none expires", percentile(quiet, 99)),
		ms("first deadline to last key gone", took),
	}, nil
}

// within returns how long those took that were due in a window.
func within(samples []sample, start time.Time, window time.Duration) (took []time.Duration) {
	for _, s := range samples {
		if !s.due.Before(start) && s.due.Before(start.Add(window)) {
			took = append(took, s.took)
		}
	}
	return took
}

// putsUntil puts at an even pace, whether or not the puts before are answered, until work returns. All are
// answered when it returns itself.
func putsUntil(ctx context.Context, conns connections, work func(ctx context.Context) error) ([]sample, error) {
	g := newGroup(ctx)
	worked, stop := context.WithCancel(g.ctx)
	defer stop()
	g.run(func(ctx context.Context) error {
		defer stop()
		return work(ctx)
	})
	var (
		mu      sync.Mutex
		samples []sample
	)
	start := time.Now()
	for i := 0; worked.Err() == nil; i++ {
		due := start.Add(time.Duration(i) * putPace)
		g.run(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, putLimit)
			defer cancel()
			err := put(ctx, conns.of(i), i%keys)
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			samples = append(samples, sample{due, took, err})
			return nil
		})
		pause(worked, time.Until(due.Add(putPace)))
	}
	err := g.wait() // only then are all samples there
	return samples, err
}
