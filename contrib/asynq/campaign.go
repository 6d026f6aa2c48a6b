package asynqlease

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/leasekeeper/leasekeeper"
)

// Scheduler is an [*asynq.Scheduler] or an [*asynq.PeriodicTaskManager].
type Scheduler interface {
	// Start starts the scheduler and returns.
	Start() error
	// Shutdown stops the scheduler and returns when it has stopped.
	Shutdown()
}

// NewScheduler makes a scheduler, registers its tasks, and does not start it. r opens connections that enqueue
// nothing once the lease is over; pass it to [asynq.NewScheduler] or as RedisConnOpt to [asynq.NewPeriodicTaskManager].
// They are closed when the scheduler has shut down.
type NewScheduler func(r asynq.RedisConnOpt) (Scheduler, error)

// Campaign runs a scheduler each time that it holds the name, until ctx ends. Each tenure has a scheduler of its own,
// which newScheduler makes. When ctx ends, the keeper is closed or the lease is about to be lost, Campaign shuts the
// scheduler down. It releases the name after that. r says how to connect to Redis.
//
// Campaign returns the error of ctx, or why it cannot go on: newScheduler or the scheduler's Start failed, the keeper was
// closed, or the store refused the claim for good. An error of the store that passes does not end it.
func Campaign(ctx context.Context, k *leasekeeper.Keeper, name string, r asynq.RedisConnOpt, newScheduler NewScheduler, o ...leasekeeper.Option) error {
	if r == nil || newScheduler == nil {
		return fmt.Errorf("%w: asynqlease.Campaign needs a connection to Redis and a function that makes a scheduler", leasekeeper.ErrInvalid)
	}
	return k.Campaign(ctx, name, func(ctx context.Context, lease *leasekeeper.Lease) error {
		g := &gate{lease: lease, redis: r}
		defer g.close()
		return tenure(ctx, g, newScheduler)
	}, o...)
}

// tenure runs one scheduler from the beginning of a lease to its end.
func tenure(ctx context.Context, g *gate, newScheduler NewScheduler) error {
	s, err := newScheduler(g)
	if err != nil {
		return fmt.Errorf("asynqlease: no scheduler: %w", err)
	}
	if err := g.check(); err != nil {
		return nil // making it took longer than the lease lasts
	}
	if err := s.Start(); err != nil {
		return fmt.Errorf("asynqlease: start of the scheduler: %w", err)
	}
	defer s.Shutdown()
	for {
		left := g.left()
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C: // the lease was renewed meanwhile, or not
		}
	}
}
