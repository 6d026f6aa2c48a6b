package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

const (
	// contendedName is the mutex that is handed over, and holdFor how long each has it: long enough for who
	// had it last to be waiting again.
	contendedName = "handed-over"
	holdFor       = 5 * time.Millisecond
	// clientTimeout bounds what etcd's client does without a context of ours.
	clientTimeout = 10 * time.Second
)

// errShared is what a mutex is there to prevent.
var errShared = errors.New("two hold the mutex at once")

// sessions are what etcd's own library needs for a mutex: each has a lease that the library renews.
type sessions struct {
	clients []*clientv3.Client
	all     []*concurrency.Session
}

// openSessions opens n of them, on at most rateConnections connections.
func openSessions(ctx context.Context, s *server, n int) (opened *sessions, err error) {
	opened = &sessions{}
	defer func() {
		if err != nil {
			opened.close()
		}
	}()
	for range min(n, rateConnections) {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"http://" + s.addr}, DialTimeout: clientTimeout, Context: ctx, Logger: zap.NewNop()})
		if err != nil {
			return opened, err
		}
		opened.clients = append(opened.clients, client)
	}
	for i := range n {
		session, err := concurrency.NewSession(opened.clients[i%len(opened.clients)])
		if err != nil {
			return opened, err
		}
		opened.all = append(opened.all, session)
	}
	return opened, nil
}

// close leaves the leases to the end of the server, which is near.
func (s *sessions) close() {
	for _, client := range s.clients {
		client.Close()
	}
}

// lockUnlock measures how often so many sessions, each with a name that no other wants, lock and unlock.
func lockUnlock(inFlight int) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		opened, err := openSessions(ctx, s, inFlight)
		if err != nil {
			return nil, err
		}
		defer opened.close()
		return rate(ctx, s, z, inFlight, "", func(ctx context.Context, worker int, count *atomic.Int64) error {
			mutex := concurrency.NewMutex(opened.all[worker], fmt.Sprintf("own/%d", worker))
			for {
				if err := mutex.Lock(ctx); err != nil {
					return err
				}
				if err := mutex.Unlock(ctx); err != nil {
					return err
				}
				count.Add(1)
			}
		})
	}
}

// handOver measures how long it takes from when a holder begins to unlock until the next one's lock returns.
func handOver(contenders int) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		opened, err := openSessions(ctx, s, contenders)
		if err != nil {
			return nil, err
		}
		defer opened.close()
		b := &baton{start: time.Now().Add(z.warm)}
		g := newGroup(ctx)
		took := make([][]time.Duration, contenders)
		for i, session := range opened.all {
			g.run(func(ctx context.Context) (err error) {
				took[i], err = b.contend(ctx, session)
				if ctx.Err() != nil {
					return nil // whatever it says: it was ended
				}
				return err
			})
		}
		pause(g.ctx, z.warm+z.span)
		g.cancel(errMeasured)
		if err := g.wait(); !errors.Is(err, errMeasured) {
			return nil, err
		}
		return handOverFigures(took)
	}
}

func handOverFigures(took [][]time.Duration) ([]figure, error) {
	var all []time.Duration
	for _, some := range took {
		all = append(all, some...)
	}
	if len(all) == 0 {
		return nil, errors.New("the mutex was never handed over")
	}
	return []figure{
		{name: "p50, from unlock called to lock returned", unit: "ms", value: milliseconds(percentile(all, 50)), goal: "2"},
		{name: "p99, from unlock called to lock returned", unit: "ms", value: milliseconds(percentile(all, 99))},
	}, nil
}

// baton is what contenders know of the one before.
type baton struct {
	start    time.Time // earlier ones are not counted
	held     atomic.Bool
	released atomic.Pointer[time.Time] // when the last holder began to unlock
}

// contend locks and unlocks until the context ends. It returns how long each hand-over took for which this
// contender was waiting when the holder before let go.
func (b *baton) contend(ctx context.Context, session *concurrency.Session) (took []time.Duration, err error) {
	mutex := concurrency.NewMutex(session, contendedName)
	for {
		asked := time.Now()
		if err := mutex.Lock(ctx); err != nil {
			return took, err
		}
		now := time.Now()
		if !b.held.CompareAndSwap(false, true) {
			return took, errShared
		}
		if released := b.released.Load(); released != nil && released.After(asked) && released.After(b.start) {
			took = append(took, now.Sub(*released))
		}
		pause(ctx, holdFor)
		b.held.Store(false)
		now = time.Now()
		b.released.Store(&now)
		if err := mutex.Unlock(ctx); err != nil {
			return took, err
		}
	}
}
