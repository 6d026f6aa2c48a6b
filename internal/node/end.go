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

// errStuck is the answer to readiness checks while the disk is stuck; requests wait for as long as their contexts
// allow. A member that is only busy, or gets no processor, still serves. Taking it out of service would not make it
// faster.
var errStuck = fmt.Errorf("the disk has not finished a write, a read or a sync for more than %v: see the kernel's log", stuckLooks*diskLook)

// end marks the member as ended, with the reason err. Any goroutine may call it, more than once; the first reason
// counts. It waits for no goroutine: when the disk fails, any of them may be stuck in the database forever, including
// the one that calls Step. Callers that watch Done must still be notified.
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
		n.becomeIdle()
		close(n.done)
	})
}

// becomeIdle tells callers that no more events are handled. Any goroutine may call it, more than once.
func (n *Node) becomeIdle() { n.idleOnce.Do(func() { close(n.idle) }) }

// halt ends the member. The database calls it, on any goroutine, when it cannot go on.
func (n *Node) halt(err error) { n.end(datadir.Explain(n.cfg.Dir, err)) }

// openInTime runs open, for at most as long as ctx lasts. The database may be stuck in a disk that does not answer,
// or may have called halt without returning.
func (n *Node) openInTime(ctx context.Context) error {
	opened := make(chan error, 1)
	go func() { opened <- n.open(ctx) }()
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
		n.abandon(opened)
		return ctx.Err()
	case <-n.done:
	}
	// Usually the database also returns an error, and open closes everything.
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

// openGrace is how long Start waits for a database that has called halt.
const openGrace = time.Second

// abandon closes what open is still opening, as soon as open returns.
func (n *Node) abandon(opened <-chan error) {
	go func() {
		if <-opened == nil {
			_ = n.close() // Start has returned: nobody receives the error
		}
	}()
}

// Serving returns nil if the member would accept a request now, and otherwise why not. It only checks that the disk
// is not stuck and that the member knows a leader; see CheckReady.
func (n *Node) Serving() error {
	if err := n.checkAlive(); err != nil {
		return err
	}
	if !n.serving.Load() {
		return replica.ErrNoLeader
	}
	return nil
}

// errNotReady is the answer to readiness probes of a member that hears a leader but has not completed a read or
// renewal through it.
var errNotReady = errors.New("the member hears a leader, but linearizable reads and renewals have not worked through it for two election timeouts: " +
	"see whether it reaches the leader, and whether its data directory is the one that it had")

// CheckReady returns nil if linearizable reads and renewals worked through this member within the last two election
// timeouts, and otherwise why not.
func (n *Node) CheckReady() error {
	if err := n.checkAlive(); err != nil {
		return err
	}
	switch {
	case !clock.Now().After(*n.readyUntil.Load()):
		return nil
	case n.awaits.Load() != nil:
		return fmt.Errorf("the member is new, and waits until all members know its data directory: %s; if one will never come, see leasekeeper found", *n.awaits.Load())
	case !n.serving.Load():
		return replica.ErrNoLeader
	}
	return errNotReady
}

// checkAlive returns an error if the member is stopped or its disk is stuck.
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

// Status returns a snapshot, without asking other members. If the member's goroutine does not answer before ctx ends,
// Status returns that error with the header only.
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

// close flushes and closes the database. After that flush a checksum covers every byte of the data directory. Without
// it, the end of the write-ahead log could pass for a write that a crash cut off.
func (n *Node) close() error {
	var err error
	if n.db != nil {
		err = errors.Join(n.db.Flush(), n.db.Close())
	}
	if n.lock != nil {
		err = errors.Join(err, n.lock.Close())
	}
	n.spares.close()
	return err
}
