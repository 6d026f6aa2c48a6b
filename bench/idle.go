package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// renewedAt is the part of its TTL after which every library here renews a lease.
const renewedAt = 3

// idle measures what users of a library send while they hold names and do nothing else. Each user has a connection, and on
// it several names, each with a lease.
func idle(open library, holders, each int, goal string) func(context.Context, *server, size) ([]figure, error) {
	return func(ctx context.Context, s *server, z size) (figures []figure, err error) {
		t, err := newTally(s.addr)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, t.close()) }()
		counted := *s.target // the same server, reached through the tally
		through := &server{target: &counted, addr: t.addr()}
		opened, err := open(ctx, through, plan{holders, z.idleTTL})
		if err != nil {
			return nil, err
		}
		defer opened.close()
		held, err := holdAll(ctx, opened, 0, holders*each)
		if err != nil {
			return nil, err
		}
		turn := z.idleTTL / renewedAt
		pause(ctx, 2*turn) // until those are renewed together that are
		messages, bytes, used, start := t.messages.Load(), t.bytes.Load(), s.cpuTime(), time.Now()
		pause(ctx, time.Duration(z.idleTurns)*turn)
		messages, bytes, used = t.messages.Load()-messages, t.bytes.Load()-bytes, s.cpuTime()-used
		took := time.Since(start)
		if err := checkAll(ctx, held); err != nil {
			return nil, err
		}
		turns := took.Seconds() / turn.Seconds()
		return []figure{
			{name: "messages from clients", unit: "1/s", value: float64(messages) / took.Seconds()},
			{name: "of each client in a third of the TTL", value: float64(messages) / turns / float64(holders), goal: goal},
			{name: "bytes from clients", unit: "kB/s", value: float64(bytes) / 1000 / took.Seconds()},
			{name: "server's time on a core", unit: "%", value: used.Seconds() / took.Seconds() * 100},
		}, nil
	}
}

// holdAll has the users from one up to, without, another hold a name each.
func holdAll(ctx context.Context, opened users, from, to int) ([]locker, error) {
	held := make([]locker, to-from)
	return held, spread(ctx, prepareInFlight, len(held), func(ctx context.Context, _, i int) error {
		held[i] = opened.locker(from+i, fmt.Sprintf("own/%d", from+i))
		return held[i].Lock(ctx)
	})
}

// checkAll returns an error unless all is still held.
func checkAll(ctx context.Context, held []locker) error {
	for _, l := range held {
		if err := l.Check(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// isReset says whether a connection ended because the other side had left.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
