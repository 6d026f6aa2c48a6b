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
	// contendedName is the name that is handed over, and holdFor how long each holds it: long enough for
	// the last holder to wait again.
	contendedName = "handed-over"
	holdFor       = 5 * time.Millisecond
	// clientTimeout bounds what etcd's client does without a context of ours.
	clientTimeout = 10 * time.Second
)

// errShared means that two users held a name at once.
var errShared = errors.New("two hold the name at once")

// sessions are what etcd's own library needs for a mutex: each user has one, with a lease that the library
// renews.
type sessions struct {
	clients []*clientv3.Client
	ttl     time.Duration
}

func openSessions(ctx context.Context, s *server, p plan) (users, error) {
	opened := &sessions{ttl: p.ttl}
	for range p.connections {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"http://" + s.addr}, DialTimeout: clientTimeout, Context: ctx, Logger: zap.NewNop()})
		if err != nil {
			opened.close()
			return nil, err
		}
		opened.clients = append(opened.clients, client)
	}
	return opened, nil
}

func (s *sessions) locker(user int, name string) locker {
	return &mutexLocker{client: s.clients[user%len(s.clients)], ttl: s.ttl, name: name}
}

func (s *sessions) close() {
	for _, client := range s.clients {
		client.Close()
	}
}

// mutexLocker holds a name with a Mutex. Its session begins when it is first locked.
type mutexLocker struct {
	client  *clientv3.Client
	ttl     time.Duration
	name    string
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (m *mutexLocker) Lock(ctx context.Context) (err error) {
	if m.session == nil {
		if m.session, err = concurrency.NewSession(m.client, concurrency.WithTTL(int(m.ttl/time.Second))); err != nil {
			return err
		}
		m.mutex = concurrency.NewMutex(m.session, m.name)
	}
	return m.mutex.Lock(ctx)
}

func (m *mutexLocker) Unlock(ctx context.Context) error { return m.mutex.Unlock(ctx) }

func (m *mutexLocker) Check() error {
	select {
	case <-m.session.Done():
		return fmt.Errorf("the session that holds %s has ended", m.name)
	default:
		return nil
	}
}

// handOver measures hand-overs of one name among waiters that share connections. The time is from the moment before a
// holder's unlock until the next one's lock returns.
func handOver(open library, waiters, connections int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) ([]figure, error) {
		opened, err := open(ctx, s, plan{connections, lockTTL})
		if err != nil {
			return nil, err
		}
		defer opened.close()
		return contending(ctx, opened, z, &baton{waiters: waiters}, goal)
	}
}

// contending has users want one name.
func contending(ctx context.Context, opened users, z size, b *baton, goal string) ([]figure, error) {
	b.start = time.Now().Add(z.warm)
	g := newGroup(ctx)
	took := make([][]time.Duration, b.waiters)
	for i := range b.waiters {
		contended := opened.locker(i, contendedName)
		g.run(func(ctx context.Context) (err error) {
			took[i], err = b.contend(ctx, contended)
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
	return handOverFigures(took, goal)
}

func handOverFigures(took [][]time.Duration, goal string) ([]figure, error) {
	var all []time.Duration
	for _, some := range took {
		all = append(all, some...)
	}
	if len(all) == 0 {
		return nil, errors.New("the name was never handed over")
	}
	return []figure{
		{name: "p50, from unlock called to lock returned", unit: "ms", value: milliseconds(percentile(all, 50)), goal: goal},
		{name: "p99, from unlock called to lock returned", unit: "ms", value: milliseconds(percentile(all, 99))},
	}, nil
}

// baton is what waiters know of the one before.
type baton struct {
	waiters  int
	rest     time.Duration // between unlock and lock, and for so long it is held, so that where there is no line it is the other one's turn
	start    time.Time     // earlier ones are not counted
	held     atomic.Bool
	released atomic.Pointer[time.Time] // when the last holder began to unlock
}

// contend locks and unlocks until the context ends. It returns how long each hand-over took for which this
// waiter was waiting when the holder before let go.
func (b *baton) contend(ctx context.Context, contended locker) (took []time.Duration, err error) {
	for {
		asked := time.Now()
		if err := contended.Lock(ctx); err != nil {
			return took, err
		}
		now := time.Now()
		if !b.held.CompareAndSwap(false, true) {
			return took, errShared
		}
		if released := b.released.Load(); released != nil && released.After(asked) && released.After(b.start) {
			took = append(took, now.Sub(*released))
		}
		pause(ctx, max(holdFor, b.rest))
		if err := contended.Check(); err != nil {
			return took, err
		}
		b.held.Store(false)
		now = time.Now()
		b.released.Store(&now)
		if err := contended.Unlock(ctx); err != nil {
			return took, err
		}
		if b.rest > 0 {
			pause(ctx, b.rest)
		}
	}
}
