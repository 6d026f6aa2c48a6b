package lessor

import (
	"iter"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

const expiredCapacity = 16 // batches in the channel

// Driver is a [Lessor] for programs that have no replicated log of their own to apply: it is the log's only
// member, reads the clock, and hands expired leases to a channel whose reader revokes them. All methods
// may be called from any goroutine. One goroutine of its own runs from NewDriver to Stop.
type Driver struct {
	config  DriverConfig
	expired chan []*Lease
	wake    chan struct{} // has room for one: look at the queue again
	stop    chan struct{}
	done    chan struct{}

	mu           sync.Mutex
	changed      *sync.Cond // something that a waiting renewal may wait for
	core         *Lessor
	deleter      RangeDeleter
	checkpointer Checkpointer
	checkpoints  []Checkpoint // handed out by the core in the present turn
	cleared      []Cleared
	position     uint64 // of the last command applied
	term         uint64 // how often Promote was called
	stopped      bool
	offers       []batch       // decided, or due again, and not yet handed to the channel
	delivered    []batch       // handed to the channel, oldest first
	sleepsUntil  clock.Instant // when the goroutine means to look again
	demotions    uint64
}

// batch is a number of leases that were decided to have expired.
type batch struct {
	leases []Ref
	at     clock.Instant // when they were handed to the channel
}

// NewDriver returns a running driver, not primary. It panics if the configuration is not valid.
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

// Stop ends the driver's goroutine and waits for it. Renewals that wait return [ErrStopped]. The channel
// of expired leases is not closed. Stopping twice is as good as once.
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

// Wake makes the driver look at its clock now. Only who injected a clock and moves it by hand needs it.
func (d *Driver) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// SetRangeDeleter installs what deletes the items of revoked leases. It is called without a lock held, so
// its transactions may call Attach, Detach and GetLease.
func (d *Driver) SetRangeDeleter(deleter RangeDeleter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleter = deleter
}

// SetCheckpointer installs what records checkpoints, and thereby enables them; call it before Promote. It
// runs on the driver's goroutine without a lock held and returns when what it was given is recorded; only
// then the driver applies it, and a renewal that waited for a clear returns. It must not call Renew or Stop.
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

// Grant creates a lease that lasts ttl seconds, at least the configured minimum.
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
	// The transaction is opened before the lease goes, so that no writer of the store comes in between.
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

// Checkpoint applies a checkpoint that was decided elsewhere: the lease has remainingTTL seconds left from
// now, or has been renewed if that is zero. It is no error if the lease has ended.
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

// Attach binds items to a lease; an item that was attached to another is moved.
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

// GetLease returns the id of the lease an item is attached to, or [NoLease].
func (d *Driver) GetLease(item Item) ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.GetLease(item)
}

// Promote makes the driver decide ends; before that every lease lasts for ever.
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

// Demote undoes Promote. Batches of expired leases that nobody has received are taken back; a reader that
// has received one before should ask Lookup whether the lease is still expiring.
func (d *Driver) Demote() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stepDown()
}

func (d *Driver) stepDown() {
	d.core.Demote()
	d.demotions++
	d.offers, d.delivered = nil, nil
	d.drainExpired()
	d.changed.Broadcast()
}

// drainExpired empties the channel.
func (d *Driver) drainExpired() {
	for {
		select {
		case <-d.expired:
		default:
			return
		}
	}
}

// Renew makes a lease last for its TTL from now, which it returns in seconds. It returns [ErrEnding] for a
// lease that was handed to the channel: its reader is about to revoke it. If the lease has been
// checkpointed Renew waits until the Checkpointer has recorded that this is over.
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

// Leases returns copies of all leases, the one that ends soonest first.
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

// ExpiredLeasesC returns the channel of batches of expired leases. Its reader revokes them. No batch is
// lost when the channel is full; a lease that is not revoked is handed out again after the retry interval.
func (d *Driver) ExpiredLeasesC() <-chan []*Lease { return d.expired }

// Records returns the durable form of everything but the items, for Recover.
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

// Recover replaces everything by what Records once returned; the driver is then not primary. The caller
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

// next returns the position of the command that is about to be applied.
func (d *Driver) next() Position {
	d.position++
	return At(d.position, 0)
}

// wakeIfSooner wakes the goroutine if it would oversleep what has just changed.
func (d *Driver) wakeIfSooner(now clock.Instant) {
	if wait, ok := d.core.NextDue(now); ok && wait < now.Until(d.sleepsUntil) {
		d.Wake()
	}
}

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

// wasPaused reports whether the goroutine comes so late that renewals may be waiting for the process to
// run again just as it did.
func (d *Driver) wasPaused() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.config.Now().Before(d.sleepsUntil.Add(2 * d.config.Tick))
}

// turn does what is due. It returns the batch to offer, if any, with the count of demotions that shows
// whether it is still to be offered, and for how long to sleep.
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

// record lets the Checkpointer record what the core has handed out, then applies it.
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

func (d *Driver) stillExpiring(refs []Ref) []*Lease {
	leases := make([]*Lease, 0, len(refs))
	for _, ref := range refs {
		if lease, ok := d.core.Lookup(ref.ID); ok && lease.Generation == ref.Generation && lease.Ending {
			leases = append(leases, &lease)
		}
	}
	return leases
}

// sleepFor returns how long to sleep. A timer is a hint that may come late, so it is set short of what is
// left and set again.
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

// noteDelivery notes that the first offer is in the channel now, or takes it back if the driver was demoted
// meanwhile.
func (d *Driver) noteDelivery(demotions uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.demotions != demotions {
		d.drainExpired() // nobody else sends, so there is nothing newer in it
		return
	}
	d.delivered = append(d.delivered, batch{d.offers[0].leases, d.config.Now()})
	d.offers = d.offers[1:]
}
