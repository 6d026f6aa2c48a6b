package serve

import (
	"context"
	"errors"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/leasekeeper/leasekeeper/internal/node"
)

// startWatchdog begins to tell systemd that the member works, if the unit has WatchdogSec. Without that sign, systemd ends
// the process and starts it again. The caller calls stop, which returns when the last sign is sent.
func (p *process) startWatchdog(ctx context.Context) (stop func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		p.log.Warn("systemd's watchdog is off", "error", err)
	}
	if interval <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(ctx, interval/2, p.responsive, func() { p.notify(daemon.SdNotifyWatchdog) })
	}()
	return func() { cancel(); <-ended }
}

// responsive returns nil if the member's goroutine answers, or has ended: then the process is about to end by itself.
func (p *process) responsive(ctx context.Context) error {
	if _, err := p.node.Status(ctx); err != nil && !errors.Is(err, node.ErrStopped) {
		return err
	}
	return nil
}

// watch calls check once in each interval until the context ends, and sign after each check without an error. A check has
// one interval.
func watch(ctx context.Context, interval time.Duration, check func(context.Context) error, sign func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, interval)
		if check(bounded) == nil {
			sign()
		}
		cancel()
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}
