package asynqlease

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/leasekeeper/leasekeeper"
)

// reserveParts: the last TTL/reserveParts of a lease is for the scheduler's shutdown.
const reserveParts = 4

// gate opens connections to Redis for one tenure. Once the lease is in its last quarter, they pass only commands that
// cannot enqueue a task.
type gate struct {
	lease *leasekeeper.Lease
	redis asynq.RedisConnOpt

	mu      sync.Mutex
	clients []redis.UniversalClient
}

var _ asynq.RedisConnOpt = (*gate)(nil)

// MakeRedisClient returns a client for a scheduler. The gate closes it.
func (g *gate) MakeRedisClient() any {
	made := g.redis.MakeRedisClient()
	client, ok := made.(redis.UniversalClient)
	if !ok {
		return made // asynq refuses it
	}
	client.AddHook(hook{g})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clients = append(g.clients, client)
	return client
}

// close closes all clients.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, client := range g.clients {
		_ = client.Close() // a scheduler that has started has closed its own
	}
}

// left returns how long the scheduler may run if the lease is not renewed.
func (g *gate) left() time.Duration { return g.lease.Remaining() - g.lease.TTL()/reserveParts }

// check returns an error if the scheduler must not act.
func (g *gate) check() error {
	if err := g.lease.Check(); err != nil {
		return err
	}
	if g.left() <= 0 {
		return fmt.Errorf("%w: the lease on %s was not renewed and is about to end", leasekeeper.ErrUnavailable, g.lease.Name())
	}
	return nil
}

// harmless are the commands that enqueue nothing: a scheduler's clearing up, and what sets up a connection.
var harmless = map[string]bool{
	"del": true, "zrem": true,
	"auth": true, "client": true, "cluster": true, "command": true, "hello": true, "readonly": true, "select": true,
}

// admit returns the context for some commands, which ends with the lease as far as it is known now, or an error if they
// must not be sent.
func (g *gate) admit(ctx context.Context, commands ...redis.Cmder) (context.Context, context.CancelFunc, error) {
	pass := true
	for _, c := range commands {
		pass = pass && harmless[strings.ToLower(c.Name())]
	}
	if pass {
		return ctx, func() {}, nil
	}
	if err := g.check(); err != nil {
		err = fmt.Errorf("asynqlease: not sent to Redis: %w", err)
		for _, c := range commands {
			c.SetErr(err)
		}
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.lease.Remaining())
	return ctx, cancel, nil
}

// hook puts a gate before the commands of a client.
type hook struct{ gate *gate }

// DialHook implements [redis.Hook].
func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		ctx, done, err := h.gate.admit(ctx, c)
		if err != nil {
			return err
		}
		defer done()
		return next(ctx, c)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		ctx, done, err := h.gate.admit(ctx, commands...)
		if err != nil {
			return err
		}
		defer done()
		return next(ctx, commands)
	}
}
