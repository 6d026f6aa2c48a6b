package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// errStuck is for those who ask whether the member serves; requests just wait for as long as they like to. A member that
// is only busy, or gets no processor, serves: it is late, and to take it out of service would not make it sooner.
var errStuck = fmt.Errorf("the disk has not finished a write, a read or a sync for more than %v: see the kernel's log", stuckLooks*diskLook)

// end says that the member has ended, and why. It may be called from any goroutine, more than once; the
// first reason counts. It waits for nobody: when the disk fails, any of our goroutines may be stuck in the
// database for ever, the one that calls Step included, and a caller that watches Done must hear of it all the same.
func (n *Node) end(err error) {
	n.endOnce.Do(func() {
		n.serving.Store(false)
		n.endClosing()
		if n.store != nil {
			n.last = Status{Header: n.Header()}
		}
		if err != nil {
			n.log.Error("member halted", "error", err)
		}
		n.err = err
		close(n.done)
	})
}

// halt is told by the database, on any goroutine, that it cannot go on.
func (n *Node) halt(err error) { n.end(datadir.Explain(n.cfg.Dir, err)) }

// openInTime is open for as long as ctx lasts. The database may be stuck in a disk that does not answer, or
// have called halt and never come back.
func (n *Node) openInTime(ctx context.Context) error {
	opened := make(chan error, 1)
	go func() { opened <- n.open() }()
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
		n.abandon(opened)
		return ctx.Err()
	case <-n.done:
	}
	// Usually the database returns an error too, and everything is closed again.
	select {
	case err := <-opened:
		if err == nil {
			err = errors.Join(n.err, n.close())
		}
		return err
	case <-time.After(openGrace):
		n.abandon(opened)
		return n.err
	}
}

// openGrace is how long Start waits for a database that has said it cannot go on.
const openGrace = time.Second

// abandon closes what is being opened as soon as that is done.
func (n *Node) abandon(opened <-chan error) {
	go func() {
		if <-opened == nil {
			_ = n.close() // nobody is left to be told
		}
	}()
}

// Serving returns nil if the member would take on a request now, else why not. It looks no further than whether the
// member knows a leader: see CheckReady.
func (n *Node) Serving() error {
	if err := n.checkAlive(); err != nil {
		return err
	}
	if !n.serving.Load() {
		return replica.ErrNoLeader
	}
	return nil
}

// errNotReady is for probes.
var errNotReady = errors.New("the member hears a leader, but linearizable reads and renewals have not worked through it for two election timeouts: " +
	"see whether it reaches the leader, and whether its data directory is the one that it had")

// CheckReady returns nil if linearizable reads and renewals work through this member, or did within the last two election
// timeouts, else why not.
func (n *Node) CheckReady() error {
	if err := n.checkAlive(); err != nil {
		return err
	}
	switch {
	case !clock.Now().After(*n.readyUntil.Load()):
		return nil
	case n.awaits.Load() != nil:
		return fmt.Errorf("the member is new, and waits until all members know its data folder: %s; if one will never come, see leasekeeper found", *n.awaits.Load())
	case !n.serving.Load():
		return replica.ErrNoLeader
	}
	return errNotReady
}

// checkAlive returns nil if the member is not stopped, and its disk not stuck.
func (n *Node) checkAlive() error {
	select {
	case <-n.stopping:
		return ErrStopped
	case <-n.done:
		return ErrStopped
	default:
	}
	if n.disk.stuck() {
		return errStuck
	}
	return nil
}

// Status returns a snapshot, without asking other members. If the member's goroutine does not answer before
// ctx ends, it returns that error with the little that is known.
func (n *Node) Status(ctx context.Context) (Status, error) {
	status, err := look(ctx, n, n.readStatus)
	switch {
	case errors.Is(err, ErrStopped):
		return n.last, err
	case err != nil:
		return Status{Header: n.Header()}, err
	}
	return status, nil
}
