package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// fewKeys are read where that is not about how many are read at once.
const fewKeys = 1000

// errNothing says that a measurement saw nothing that it could measure.
var errNothing = errors.New("nothing was done in the time in which it was to be measured")

// getLatency measures how long linearizable gets take, one after the other, of keys that are there.
func getLatency(ctx context.Context, s *server, z size) (took []time.Duration, err error) {
	random := rand.New(rand.NewPCG(1, 1))
	start := time.Now()
	from, until := start.Add(z.warm), start.Add(z.warm+z.span)
	ctx, cancel := context.WithDeadlineCause(ctx, until, errMeasured)
	defer cancel()
	var asked time.Time
	err = drive(ctx, s.addr, &load{
		method: pb.KV_Range_FullMethodName,
		slots:  1,
		ask: func(_ int, buf []byte) []byte {
			asked = time.Now()
			return marshal(buf, &pb.RangeRequest{Key: plainKey(random.IntN(fewKeys))})
		},
		answer: func(_ int, message []byte) error {
			if now := time.Now(); asked.After(from) {
				took = append(took, now.Sub(asked))
			}
			return holds(message, rangeCount)
		},
		counted: func() {},
	})
	return took, measuredOr(ctx, err)
}

// lockLatency measures how long it takes to lock and unlock names without competition, one after the other.
func lockLatency(ctx context.Context, s *server, z size) (took []time.Duration, err error) {
	opened, err := ownLibrary(ctx, s, plan{1, lockTTL})
	if err != nil {
		return nil, err
	}
	defer opened.close()
	start := time.Now()
	from, until := start.Add(z.warm), start.Add(z.warm+z.span)
	own := opened.locker(0, "own/0")
	for time.Now().Before(until) {
		begun := time.Now()
		if err := own.Lock(ctx); err != nil {
			return nil, err
		}
		if err := own.Unlock(ctx); err != nil {
			return nil, err
		}
		if begun.After(from) {
			took = append(took, time.Since(begun))
		}
	}
	return took, nil
}

// measuredOr is nil if a load was ended because enough was measured.
func measuredOr(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errMeasured) {
		return nil
	}
	return err
}

// distribution shows durations by these percentiles, of which 100 is the longest. Goals are those of each; fewer
// of them leave the others without.
func distribution(name string, took []time.Duration, percentiles []float64, goals ...string) ([]figure, error) {
	if len(took) == 0 {
		return nil, errNothing
	}
	var figures []figure
	for i, p := range percentiles {
		f := figure{name: fmt.Sprintf("%sp%g", name, p), unit: "ms", value: milliseconds(percentile(took, p))}
		if p == 100 {
			f.name = name + "max"
		}
		if i < len(goals) {
			f.goal = goals[i]
		}
		figures = append(figures, f)
	}
	return figures, nil
}
