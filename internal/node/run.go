package node

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

const (
	// persistsInFlight exceeds the number of writes that a replica ever has under way. With that room, neither side
	// of the channels between the replica and the disk waits for the other.
	persistsInFlight = 64
	// maxBatch bounds the events of one Step. maxBulkBatch bounds the bytes of the bulk commands among them, because
	// a renewal waits while they are encoded.
	maxBatch     = 1024
	maxBulkBatch = 256 << 10
	// wallInterval is the time between two Ticks that carry the time of day.
	wallInterval = time.Second
)

// run is the member's goroutine. It calls Step, except for the writes that [Node.settle] reports. If the member stops or
// was removed, it waits for the other goroutines before it ends.
func (n *Node) run() {
	spaceDone := make(chan struct{})
	go func() {
		defer close(spaceDone)
		n.watchSpace()
	}()
	diskDone := make(chan struct{})
	go func() {
		defer close(diskDone)
		n.write()
	}()
	err := n.loop()
	n.owner.Lock()
	n.ended = true
	if err != nil {
		n.announceFailure()
	}
	n.owner.Unlock()
	n.becomeIdle()
	n.serving.Store(false)
	close(n.persists)
	removed := (*replica.RemovedError)(nil)
	if errors.As(err, &removed) {
		n.noteRemoval()
	}
	if err == nil || removed != nil { // the disk of a removed member is as good as that of one that stops
		n.stopOnce.Do(func() { close(n.stopping) })
		<-diskDone
		<-spaceDone
		n.endClosing()
		n.awaitUsers()
		err = errors.Join(err, n.close())
	}
	n.end(err) // after an error the other goroutines may be stuck in the database: do not wait for them
}

// loop collects events and handles them until the member stops or fails.
func (n *Node) loop() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	t := &turn{n: n, events: make([]replica.Event, 0, maxBatch)}
	for wait := time.Duration(0); ; {
		first, over := n.await(timer, wait)
		if over {
			return n.Err() // nil after Stop
		}
		var err error
		if wait, err = t.take(first); err != nil {
			return err
		}
	}
}

// await returns the first event that arrives. After wait at the latest it returns a Tick.
func (n *Node) await(timer *time.Timer, wait time.Duration) (first submission, over bool) {
	if wait <= 0 {
		select {
		case <-n.stopping:
			return first, true
		case <-n.done:
			return first, true
		default:
			return submission{event: replica.Tick{}}, false
		}
	}
	timer.Reset(wait)
	select {
	case <-n.stopping:
		return first, true
	case <-n.done:
		return first, true
	case p := <-n.persisted:
		first.event = p
	case first = <-n.intake:
	case first = <-n.bulk:
	case first.event = <-n.received:
	case first.event = <-n.states.installed:
	case <-timer.C:
		first.event = replica.Tick{}
	case <-n.wakeup:
		first.event = replica.Tick{}
	}
	return first, false
}

// turn holds the events that the member's goroutine handles in one Step. It is reused for the next Step.
type turn struct {
	n      *Node
	events []replica.Event
	looks  []func(*replica.Replica, clock.Instant)
	bulk   int // size in bytes of the bulk commands in events
}

// take collects the pending events, calls Step and performs its effects.
func (t *turn) take(first submission) (wait time.Duration, err error) {
	n := t.n
	n.owner.Lock()
	defer n.owner.Unlock()
	if n.broken != nil {
		return 0, n.broken
	}
	t.events, t.looks, t.bulk = t.events[:0], t.looks[:0], 0
	t.add(first)
	t.drain()
	wait, n.broken = n.perform(n.step(t.events))
	clear(t.events) // drops the references to requests
	if n.broken != nil {
		return 0, n.broken
	}
	for _, look := range t.looks {
		look(n.replica, clock.Now())
	}
	return wait, nil
}

// step reads the clock and calls Step. It measures the Steps that applied log entries.
func (n *Node) step(events []replica.Event) []replica.Effect {
	start, applied := clock.Now(), n.replica.Applied()
	if n.wallSent == (clock.Instant{}) || start.Elapsed(n.wallSent) >= wallInterval {
		n.wallSent = start
		events = append(events, replica.Tick{Wall: time.Now().UnixMilli()})
		n.logClockFault(start)
		n.logRejectedPeer(start)
		n.logFounding(start)
		n.logHoldOff()
	}
	n.stepTime = start
	effects := n.replica.Step(start, events...)
	if n.replica.Applied() != applied {
		n.passLogins(effects)
		n.noteMembers(effects) // before a caller that waits for a change of the members looks for it
	}
	n.applied.advance(n.replica.Applied()) // before the callers receive answers
	if n.replica.Applied() != applied {
		n.applies.Observe(clock.Now().Elapsed(start), 1)
	}
	return effects
}

// drain adds the events that are pending already, so that one Step and one log entry carry them together. Bulk
// commands come last, up to maxBulkBatch bytes.
func (t *turn) drain() {
	for len(t.events) < maxBatch {
		select {
		case p := <-t.n.persisted:
			t.events = append(t.events, p)
		case e := <-t.n.received:
			t.events = append(t.events, e)
		case e := <-t.n.states.installed:
			t.events = append(t.events, e)
		case s := <-t.n.intake:
			t.add(s)
		default:
			t.drainBulk()
			return
		}
	}
}

func (t *turn) drainBulk() {
	for len(t.events) < maxBatch && t.bulk < maxBulkBatch {
		select {
		case s := <-t.n.bulk:
			t.add(s)
		default:
			return
		}
	}
}

func (t *turn) add(s submission) {
	if s.look != nil {
		t.looks = append(t.looks, s.look)
		return
	}
	if s.caller != nil {
		for i := range s.following + 1 {
			t.n.calls[s.id+uint64(i)] = s.caller
		}
	}
	t.bulk += s.bulk
	t.events = append(t.events, s.event)
}

// perform performs the effects of a Step in order. It returns the time until the next Step.
func (n *Node) perform(effects []replica.Effect) (wait time.Duration, err error) {
	wait = replica.TickInterval
	if err := n.markVersion(); err != nil {
		return 0, err
	}
	for _, effect := range effects {
		switch e := effect.(type) {
		case replica.Persist:
			// The write enters the database's log here, so that its sync begins without waiting for a goroutine.
			if err := n.db.ApplyNoSyncWait(e.Batch, pebble.Sync); err != nil {
				return 0, datadir.Explain(n.cfg.Dir, err)
			}
			n.persists <- syncing{e, time.Now()}
		case replica.Reply:
			n.answer(e.ID, replica.Authorized(effect, clock.Now))
		case replica.Replies:
			n.answerAll(e)
		case replica.ReadAt:
			n.answer(e.ID, replica.Authorized(effect, clock.Now))
		case replica.Renewed:
			n.answer(e.ID, replica.Authorized(effect, clock.Now))
		case replica.Publish:
			n.hub.Publish(e.Changes)
			n.nameHub.publish(e.Names)
		case replica.Send:
			n.dispatch(e)
		case replica.Ship:
			n.ship(e)
		case replica.Install:
			n.install(e)
		case replica.Discard:
			n.discard(e)
		case replica.Replaced:
			n.replaced()
		case replica.Reconfigured:
			n.connect(e.Members, true)
		case replica.WakeAt:
			wait, n.wake = e.Wait, n.stepTime.Add(e.Wait)
		case replica.Halt:
			return 0, datadir.Explain(n.cfg.Dir, e.Err)
		}
	}
	n.deliverHolds()
	n.logShortage()
	n.logHandOver()
	if until := n.replica.Ready(); until != *n.readyUntil.Load() {
		n.readyUntil.Store(&until)
	}
	n.publishLeader()
	if serving := n.leader.Load().id != 0; serving != n.serving.Load() {
		n.setServing(serving)
	}
	return wait, nil
}

func (n *Node) setServing(serving bool) {
	n.serving.Store(serving)
	if !serving {
		n.log.Warn("member does not serve: there is no leader", "term", n.term())
		return
	}
	n.log.Info("member serves", "leads", n.replica.Serving(), "term", n.term(), "revision", n.store.Revision(), "leases", n.replica.Lessor().Len())
	select {
	case <-n.ready:
	default:
		close(n.ready)
	}
}

// term returns the replica's term. The caller holds owner.
func (n *Node) term() uint64 {
	_, term := n.replica.Leader()
	return term
}

func (n *Node) answer(id uint64, effect replica.Effect) {
	if call, ok := n.calls[id]; ok {
		call.deliver(effect)
	}
}

func (n *Node) answerAll(replies replica.Replies) {
	for i := range replies {
		if call, ok := n.calls[replies[i].ID]; ok {
			call.deliverReply(&replies[i])
		}
	}
}

// settle reports a synced write to the replica on the disk's goroutine, if at most one caller waits. It answers a
// lone change without waking the member's goroutine first.
//
// settle returns false, and has done nothing, if the member's goroutine must report the write, because that goroutine
// also takes the events that arrived meanwhile. In a cluster settle always returns false.
func (n *Node) settle(e replica.Persisted) bool {
	if !n.alone() || len(n.intake) > 0 || !n.owner.TryLock() {
		return false
	}
	defer n.owner.Unlock()
	if n.ended || n.broken != nil || len(n.calls) > 1 || !n.replica.Settles(e.Sequence) {
		return false
	}
	wake := n.wake // the member's goroutine calls Step no later than this
	_, n.broken = n.perform(n.step([]replica.Event{e}))
	if n.broken != nil || n.wake.Until(wake) > 0 {
		n.wakeRun()
	}
	return true
}

// wakeRun makes the member's goroutine call Step at once.
func (n *Node) wakeRun() {
	select {
	case n.wakeup <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// syncing is a batch in the database's log that is being synced since start.
type syncing struct {
	replica.Persist
	start time.Time
}

// write is the disk's goroutine: it waits for the sync of each batch, in order. After a failure it reports no further
// writes, because their state on the disk is unknown.
func (n *Node) write() {
	failed := false
	for p := range n.persists {
		if failed {
			continue
		}
		err := p.Batch.SyncWait()
		n.syncs.observe(time.Since(p.start))
		if failed = err != nil; !failed {
			err = p.Batch.Close()
		}
		if done := (replica.Persisted{Sequence: p.Sequence, Err: err}); !n.settle(done) {
			n.persisted <- done
		}
	}
}

// holdDatabase keeps the database open until releaseDatabase. Every read on a caller's goroutine must hold it, because a
// member that was removed closes it while clients still call. A goroutine that holds it for a time without a bound must stop
// when n.closing ends. No goroutine may hold it twice.
func (n *Node) holdDatabase() error {
	if n.closing.Err() != nil { // do not wait for those that hold it, as the member does
		return ErrStopped
	}
	n.using.RLock()
	if n.closed || n.closing.Err() != nil {
		n.using.RUnlock()
		return ErrStopped
	}
	return nil
}

func (n *Node) releaseDatabase() { n.using.RUnlock() }

// awaitUsers waits until no goroutine holds the database, and refuses later calls of holdDatabase.
func (n *Node) awaitUsers() {
	n.using.Lock()
	defer n.using.Unlock()
	n.closed = true
}
