package leasekeeper

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keepalive"
)

// Open returns a keeper on the store that a URL names. The program must import the package of the backend, at least
// like this:
//
//	import _ "github.com/leasekeeper/leasekeeper/backend/memory" // memory:
//
// The context bounds the opening only. No error shows the password of the URL.
func Open(ctx context.Context, url string, o ...KeeperOption) (*Keeper, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := backend.Open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("leasekeeper: %w", err)
	}
	k, err := New(b, o...)
	if err != nil {
		_ = b.Close(context.WithoutCancel(ctx)) // it was never used, so an error means nothing
		return nil, err
	}
	return k, nil
}

// New returns a keeper on a backend. From then on the keeper owns the backend and closes it. With an error, the caller
// still owns the backend.
func New(b backend.Backend, o ...KeeperOption) (*Keeper, error) {
	if b == nil {
		return nil, fmt.Errorf("leasekeeper: %w: there is no backend", ErrInvalid)
	}
	options, err := gather(o)
	if err != nil {
		return nil, fmt.Errorf("leasekeeper: %w", err)
	}
	core, err := keepalive.New(keepalive.Config{Drift: options.drift, NoHedge: b.Limits().OneWay, Seed: seed()})
	if err != nil {
		return nil, fmt.Errorf("leasekeeper: %w: %w", ErrInvalid, err)
	}
	k := &Keeper{
		backend:  b,
		limits:   b.Limits(),
		options:  options,
		clock:    clock.System{},
		core:     core,
		held:     make(map[string]*Lease),
		lost:     make(map[string]*Lease),
		messages: make(map[uint64]context.CancelFunc),
		wakeUp:   make(chan struct{}, 1),
		releases: make(chan struct{}, maxReleases),
		idle:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	if err := options.lease.check(b, k.limits); err != nil {
		return nil, fmt.Errorf("leasekeeper: %w", err)
	}
	var boot *bootTimer
	if tests, ok := b.(backend.Clocked); ok && tests.Clock() != nil {
		k.clock = tests.Clock()
	} else {
		boot = newBootTimer()
	}
	if options.logger != nil {
		k.journal = newOutbox(maxNotes, writeNotes(options.logger.Handler()))
		if store, ok := b.(backend.Cautious); ok {
			for _, text := range store.Cautions() {
				k.journal.add(note{time.Now(), slog.LevelWarn, text, nil})
			}
		}
	}
	if len(options.hooks) > 0 {
		k.reports = newOutbox(maxReports, callHooks(options.hooks))
	}
	k.calling, k.stopCalls = context.WithCancelCause(context.Background())
	k.working, k.stopWork = context.WithCancel(context.Background())
	k.own.Go(func() { k.watchTime(boot) })
	return k, nil
}

// seed returns a random number, so that keepers do not renew in step with each other.
func seed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
