package lessor

import (
	"iter"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// expiredCapacity is the capacity of the channel of expired leases, in batches.
const expiredCapacity = 16

// Driver is a [Lessor] for programs without a replicated log. It is the only member of its log, reads the
// clock, and sends expired leases to a channel. The reader of the channel revokes them. All methods may be
// called from any goroutine. A Driver runs one goroutine of its own, from NewDriver to Stop.
type Driver struct {
	config  DriverConfig
	expired chan []*Lease
	wake    chan struct{} // capacity 1: wakes the goroutine
	stop    chan struct{}
	done    chan struct{}

	mu           sync.Mutex // guards the following fields
	changed      *sync.Cond // broadcast when a waiting renewal may be decided
	core         *Lessor
	deleter      RangeDeleter
	checkpointer Checkpointer
	checkpoints  []Checkpoint // handed out by the core in this step
	cleared      []Cleared    // handed out by the core in this step
	position     uint64       // index of the last command applied
	term         uint64       // number of calls of Promote
	stopped      bool
	offers       []batch       // decided, or due again, and not yet sent to the channel
	delivered    []batch       // sent to the channel, oldest first
	sleepsUntil  clock.Instant // when the goroutine wakes by itself
	demotions    uint64        // number of calls of stepDown
}

// batch is a number of leases whose expiry was decided together.
type batch struct {
	leases []Ref
	at     clock.Instant // when the batch was sent to the channel
}

// NewDriver returns a running driver that is not primary. It panics if the configuration is not valid.
func NewDriver(config DriverConfig) *Driver {
	if err := config.Validate(); err != nil {
		panic(err)
	}
	d := &Driver{
		config:  config.withDefaults(),
		expired: make(chan []*Lease, expiredCapacity),
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		core:    New(config.Lessor),
	}
	d.changed = sync.NewCond(&d.mu)
	d.sleepsUntil = d.config.Now()
	go d.run()
	return d
}

// Stop ends the driver's goroutine and waits until it has ended. Waiting renewals return [ErrStopped]. Stop
// does not close the channel of expired leases. A second Stop has no effect.
func (d *Driver) Stop() {
	d.mu.Lock()
	if !d.stopped {
		d.stopped = true
		close(d.stop)
		d.changed.Broadcast()
	}
	d.mu.Unlock()
	<-d.done
}

// Wake makes the driver read its clock now. Only a caller that sets Now and moves that clock by hand needs
// it.
func (d *Driver) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// SetRangeDeleter installs the function that deletes the items of revoked leases. The driver calls it without
// holding a lock, so its transactions may call Attach, Detach and GetLease.
func (d *Driver) SetRangeDeleter(deleter RangeDeleter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleter = deleter
}

// SetCheckpointer installs the function that records checkpoints, and thereby enables them. Call it before
// Promote.
//
// The driver calls the function on its own goroutine, without holding a lock. The function returns once it
// has recorded its arguments. Then the driver applies them, and a renewal that waited for a clear returns.
// The function must not call Renew or Stop.
func (d *Driver) SetCheckpointer(checkpointer Checkpointer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if checkpointer == nil {
		d.core.SetCheckpointer(nil)
		return
	}
	d.core.SetCheckpointer(func(checkpoints []Checkpoint, cleared []Cleared) {
		d.checkpoints, d.cleared = checkpoints, cleared
	})
	d.checkpointer = checkpointer
}

// Grant creates a lease that lasts ttl seconds, but at least the configured minimum.
func (d *Driver) Grant(id ID, ttl int64) (*Lease, error) {
	if ttl > int64(MaxTTL/time.Second) {
		return nil, ErrTTLTooLarge
	}
	length := max(d.config.MinTTL, time.Duration(max(0, ttl))*time.Second)
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.config.Now()
	lease, err := d.core.Grant(id, length, d.next(), now)
	if err != nil {
		return nil, err
	}
	d.wakeIfSooner(now)
	return &lease, nil
}

// Revoke ends a lease and deletes its items in one transaction.
func (d *Driver) Revoke(id ID) error {
	d.mu.Lock()
	deleter := d.deleter
	_, ok := d.core.Lookup(id)
	d.mu.Unlock()
	if !ok {
		return ErrNotFound
	}
	// Open the transaction before the lease is removed, so that no other write of the store comes in between.
	var txn TxnDelete
	if deleter != nil {
		txn = deleter()
	}
	d.mu.Lock()
	items := d.core.Items(id)
	lease, err := d.core.Revoke(id)
	d.next()
	d.changed.Broadcast()
	d.mu.Unlock()
	switch {
	case txn == nil:
	case len(items) == 0:
		txn.End()
	default:
		deleteItems(txn, lease.Ref(), items)
	}
	return err
}

// Checkpoint applies a checkpoint that another program decided: the lease has remainingTTL seconds left from
// now. Zero means that the lease was renewed. The checkpoint counts at the next Promote, and in Records. It
// needs no Checkpointer. If the lease has ended, Checkpoint does nothing and returns nil.
func (d *Driver) Checkpoint(id ID, remainingTTL int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	lease, ok := d.core.Lookup(id)
	if !ok {
		return nil
	}
	at, now := d.next(), d.config.Now()
	if remainingTTL <= 0 {
		d.core.Clear(Cleared{Ref: lease.Ref(), Term: d.term}, d.term, at)
	} else {
		remaining := time.Duration(min(remainingTTL, int64(MaxTTL/time.Second))) * time.Second
		d.core.Checkpoint(Checkpoint{Ref: lease.Ref(), Term: d.term, DecidedAt: at, Remaining: remaining}, d.term, now)
	}
	d.changed.Broadcast()
	d.wakeIfSooner(now)
	return nil
}

// Attach binds items to a lease. It moves an item that was attached to another lease.
func (d *Driver) Attach(id ID, items []Item) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.Attach(id, items)
}

// Detach undoes Attach.
func (d *Driver) Detach(id ID, items []Item) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.Detach(id, items)
}

// GetLease returns the id of the lease that an item is attached to, or [NoLease].
func (d *Driver) GetLease(item Item) ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.GetLease(item)
}

// Promote makes the driver primary, so that leases can expire. Without a primary all leases last for ever.
func (d *Driver) Promote(extend time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stepDown()
	now := d.config.Now()
	d.term++
	d.core.BeginLeadership(d.next(), now)
	d.core.Promote(extend, now, d.term)
	d.wakeIfSooner(now)
}

// Demote undoes Promote. It takes back the batches of expired leases that the reader has not received. A
// reader that has received a batch calls Lookup to find out whether a lease is still expiring (Ending).
func (d *Driver) Demote() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stepDown()
}

// stepDown is Demote with d.mu held.
func (d *Driver) stepDown() {
	d.core.Demote()
	d.demotions++
	d.offers, d.delivered = nil, nil
	d.drainExpired()
	d.changed.Broadcast()
}

// drainExpired empties the channel of expired leases.
func (d *Driver) drainExpired() {
	for {
		select {
		case <-d.expired:
		default:
			return
		}
	}
}

// Renew makes a lease last for its TTL from now, and returns the TTL in seconds. It returns [ErrEnding] for a
// lease that was sent to the channel, because the reader is about to revoke that lease. If the lease is
// checkpointed, Renew waits until the Checkpointer has recorded a clear.
func (d *Driver) Renew(id ID) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, term := d.config.Now(), d.term
	ttl, err := d.core.Renew(id, now)
	if err != nil && err != ErrClearing {
		return 0, err
	}
	renewed, _ := d.core.Lookup(id)
	d.wakeIfSooner(now)
	for {
		lease, ok := d.core.Lookup(id)
		switch {
		case !d.core.Primary() || d.term != term:
			return 0, ErrNotPrimary
		case !ok || lease.Generation != renewed.Generation:
			return 0, ErrNotFound
		case lease.Ending:
			return 0, ErrEnding
		case !lease.Clearing:
			return int64(ttl / time.Second), nil
		case d.stopped:
			return 0, ErrStopped
		}
		d.changed.Wait()
	}
}

// Lookup returns a copy of the lease with this id, or nil.
func (d *Driver) Lookup(id ID) *Lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lease, ok := d.core.Lookup(id); ok {
		return &lease
	}
	return nil
}

// Leases returns copies of all leases. The lease with the earliest deadline comes first.
func (d *Driver) Leases() []*Lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.core.Leases()
	leases := make([]*Lease, len(all))
	for i := range all {
		leases[i] = &all[i]
	}
	return leases
}

// ExpiredLeasesC returns the channel of batches of expired leases. Its reader revokes them. A full channel
// loses no batch. The driver sends a lease again if it is not revoked within the retry interval.
func (d *Driver) ExpiredLeasesC() <-chan []*Lease { return d.expired }

// Records returns the durable form of everything but the items. Recover takes it.
func (d *Driver) Records() ([]Record, []Leadership) {
	d.mu.Lock()
	defer d.mu.Unlock()
	leases := d.core.Leases()
	records := make([]Record, len(leases))
	for i, lease := range leases {
		records[i], _ = d.core.Record(lease.ID)
	}
	return records, d.core.Leaderships()
}

// Recover replaces the whole state by a result of Records. The driver is then not primary, and the caller
// attaches the items afterwards.
func (d *Driver) Recover(records iter.Seq[Record], leaderships []Leadership) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stepDown()
	for _, leadership := range leaderships {
		d.position = max(d.position, leadership.Start.Index())
	}
	d.core.Recover(func(yield func(Record) bool) {
		for record := range records {
			d.position = max(d.position, record.Cleared.Index())
			if !yield(record) {
				return
			}
		}
	}, leaderships)
}

// next returns the position of the next command. The caller holds d.mu.
func (d *Driver) next() Position {
	d.position++
	return At(d.position, 0)
}

// wakeIfSooner wakes the goroutine if a lease is due before the goroutine wakes by itself. The caller holds
// d.mu.
func (d *Driver) wakeIfSooner(now clock.Instant) {
	if wait, ok := d.core.NextDue(now); ok && wait < now.Until(d.sleepsUntil) {
		d.Wake()
	}
}

// run is the driver's goroutine.
func (d *Driver) run() {
	defer close(d.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if d.wasPaused() {
			timer.Reset(d.config.Grace)
			select {
			case <-timer.C:
			case <-d.stop:
				return
			}
		}
		offer, demotions, sleep := d.step()
		timer.Reset(sleep)
		var expired chan<- []*Lease
		if len(offer) > 0 {
			expired = d.expired
		}
		select {
		case expired <- offer:
			d.noteDelivery(demotions)
		case <-timer.C:
		case <-d.wake:
		case <-d.stop:
			return
		}
	}
}

// wasPaused reports whether the goroutine is so late that the process was probably paused. Renewals may then
// wait for the process as well.
func (d *Driver) wasPaused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.config.Now().Before(d.sleepsUntil.Add(2 * d.config.Tick))
}

// step does the work that is due. It returns the batch to send next, nil if there is none, and how long to
// sleep. The count of demotions shows noteDelivery whether the batch is still valid once it is sent.
func (d *Driver) step() (offer []*Lease, demotions uint64, sleep time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.config.Now()
	if expiries := d.core.Due(now, At(d.position, 0)); len(expiries) > 0 {
		refs := make([]Ref, len(expiries))
		for i, e := range expiries {
			refs[i] = e.Ref
		}
		d.offers = append(d.offers, batch{leases: refs})
	}
	d.runCheckpointer()
	for len(d.delivered) > 0 && now.Elapsed(d.delivered[0].at) >= d.config.RetryInterval {
		d.offers = append(d.offers, d.delivered[0])
		d.delivered = d.delivered[1:]
	}
	for len(d.offers) > 0 {
		if offer = d.stillExpiring(d.offers[0].leases); len(offer) > 0 {
			break
		}
		d.offers = d.offers[1:]
	}
	sleep = d.sleepFor(d.config.Now())
	return offer, d.demotions, sleep
}

// runCheckpointer calls the Checkpointer with the commands that the core has handed out, and then applies
// them. The caller holds d.mu; runCheckpointer releases it during the call.
func (d *Driver) runCheckpointer() {
	checkpoints, cleared := d.checkpoints, d.cleared
	d.checkpoints, d.cleared = nil, nil
	if len(checkpoints)+len(cleared) == 0 {
		return
	}
	checkpointer := d.checkpointer
	d.mu.Unlock()
	checkpointer(checkpoints, cleared)
	d.mu.Lock()
	now := d.config.Now()
	for _, c := range checkpoints {
		d.next()
		d.core.Checkpoint(c, d.term, now)
	}
	for _, c := range cleared {
		d.core.Clear(c, d.term, d.next())
	}
	d.changed.Broadcast()
}

// stillExpiring returns copies of those leases among refs that are still expiring.
func (d *Driver) stillExpiring(refs []Ref) []*Lease {
	leases := make([]*Lease, 0, len(refs))
	for _, ref := range refs {
		if lease, ok := d.core.Lookup(ref.ID); ok && lease.Generation == ref.Generation && lease.Ending {
			leases = append(leases, &lease)
		}
	}
	return leases
}

// sleepFor returns how long the goroutine sleeps. A timer may fire late. So the goroutine sleeps for nine
// tenths of a longer wait, and then sets the timer again.
func (d *Driver) sleepFor(now clock.Instant) time.Duration {
	sleep := d.config.MaxSleep
	if wait, ok := d.core.NextDue(now); ok {
		if wait > 2*time.Millisecond {
			wait -= wait / 10
		}
		sleep = min(sleep, wait)
	}
	if len(d.delivered) > 0 {
		sleep = min(sleep, max(0, d.config.RetryInterval-now.Elapsed(d.delivered[0].at)))
	}
	d.sleepsUntil = now.Add(sleep)
	return sleep
}

// noteDelivery records that the first offer is in the channel. If the driver was demoted after step returned
// the offer, noteDelivery takes it back.
func (d *Driver) noteDelivery(demotions uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.demotions != demotions {
		d.drainExpired() // only this goroutine sends, so the channel holds no newer batch
		return
	}
	d.delivered = append(d.delivered, batch{d.offers[0].leases, d.config.Now()})
	d.offers = d.offers[1:]
}
