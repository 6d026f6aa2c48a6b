package leasekeeper

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// observePeriod is how often Observe reads a name that nothing has reported as changed. It bounds how long a change stays
// unnoticed that no watch reports, such as one that came while a watch began.
const observePeriod = DefaultTTL

// Observe yields the state of one name, and then its state after each change. It goes on over reconnections and over a
// failover of the store. A slow loop misses states in between, never the newest. Unlike [Keeper.Watch] it yields no
// temporary errors: an error is the last element, and says why the loop cannot go on.
func (k *Keeper) Observe(ctx context.Context, name string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		watcher, err := able[backend.Watcher](k, name)
		if err != nil {
			yield(Info{}, err)
			return
		}
		ctx, done := k.bound(ctx)
		changed, watched := make(chan struct{}, 1), make(chan struct{})
		// Shutdown waits for the watch, and not for the body of the loop.
		if err := k.startOwned(func() { defer close(watched); notifyChanges(ctx, watcher, name, changed) }); err != nil {
			done()
			yield(Info{}, err)
			return
		}
		defer func() {
			done()
			<-watched
		}()
		k.readChanges(ctx, name, changed, yield)
	}
}

// startOwned starts a goroutine of the keeper, unless the keeper is being closed. Shutdown waits for it.
func (k *Keeper) startOwned(run func()) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return errKeeperClosed
	}
	k.own.Go(run)
	return nil
}

// notifyChanges signals changed whenever a watch reports something about the name, until ctx ends.
func notifyChanges(ctx context.Context, w backend.Watcher, name string, changed chan<- struct{}) {
	for fails := 0; ; fails++ {
		_ = w.Watch(ctx, name, func(e backend.Event) { // its error changes nothing: the name is read anyway
			if e.Info.Name != name { // name is the prefix of another one
				return
			}
			fails = 0
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		if !pause(ctx, pauseAfter(fails, observePeriod)) {
			return
		}
	}
}

// readChanges reads the name at first, when it has changed, and once in each period, and yields what differs from before.
func (k *Keeper) readChanges(ctx context.Context, name string, changed <-chan struct{}, yield func(Info, error) bool) {
	period := time.NewTicker(observePeriod)
	defer period.Stop()
	var last Info
	for known, fails := false, 0; ; {
		limited, cancel := context.WithTimeout(ctx, observePeriod/3)
		info, err := k.backend.Get(limited, name)
		cancel()
		switch {
		case ctx.Err() != nil:
			yield(Info{}, endedBy(ctx))
			return
		case err != nil && !inconclusive(err):
			yield(Info{}, err)
			return
		case err != nil:
			fails++
			pause(ctx, pauseAfter(fails, observePeriod))
			continue
		}
		fails = 0
		if !known || !sameState(last, info) {
			known, last = true, info
			if !yield(info, nil) {
				return
			}
		}
		select {
		case <-changed:
		case <-period.C:
		case <-ctx.Done():
		}
	}
}

// sameState reports whether two states differ in nothing but the time that is left, and the length of the queue.
func sameState(a, b Info) bool {
	one, other := a.Holder, b.Holder
	same := one.Card.Started.Equal(other.Card.Started)
	one.Card.Started, other.Card.Started = time.Time{}, time.Time{}
	return same && one == other && a.Held == b.Held && a.Token == b.Token && a.TTL == b.TTL && a.Pinned == b.Pinned
}

// Elector is a candidate for one name, and an observer of who holds it: the leader. Probes and handlers may ask it at any
// rate, because it answers from memory. It is safe for concurrent use. [Keeper.NewElector] makes one.
type Elector struct {
	k       *Keeper
	name    string
	options []Option
	lease   atomic.Pointer[Lease] // of this candidate's tenure; nil if it has none

	observing sync.Once
	seen      chan struct{} // closed when newest is set for the first time, or when the observation has ended
	newest    atomic.Pointer[observed]
}

// observed is what an elector knows of its name.
type observed struct {
	info Info
	err  error // why the name cannot be observed at present, or, with a closed keeper, never again; nil if it can
}

// NewElector returns a candidate for the name. The options apply to its leases. It claims nothing before
// [Elector.Campaign].
func (k *Keeper) NewElector(name string, o ...Option) (*Elector, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	if _, err := k.forOne(o); err != nil {
		return nil, err
	}
	return &Elector{k: k, name: name, options: o, seen: make(chan struct{})}, nil
}

// Campaign is [Keeper.Campaign] for the elector's name: while fn runs, this process is the leader.
func (e *Elector) Campaign(ctx context.Context, fn Func) error {
	return e.k.Campaign(ctx, e.name, func(ctx context.Context, l *Lease) error {
		e.lease.Store(l)
		defer e.lease.CompareAndSwap(l, nil)
		return fn(ctx, l)
	}, e.options...)
}

// IsLeader reports whether this elector leads at this moment: its function runs, and its lease is valid. It is false as soon
// as the context of the function has ended, because the leader is resigning then.
func (e *Elector) IsLeader() bool { return e.Lease() != nil }

// Lease returns the lease under which this elector leads, or nil if it does not lead.
func (e *Elector) Lease() *Lease {
	if l := e.lease.Load(); l != nil && l.Context().Err() == nil && l.Check() == nil {
		return l
	}
	return nil
}

// Leader returns the state of the name as this elector last observed it: the holder with its card, if there is one. The
// first call begins the observation, which lasts until the keeper is closed, and waits for the first state or for ctx.
// Later calls return at once. While the store is away they return the newest state that was seen, so the answer is a hint
// for people and for routing requests; what must be exclusive asks [Elector.IsLeader] or checks a token.
//
// While the store refuses to read the name, for instance with [ErrCorrupt], Leader returns that error, together with the
// newest state that was seen. The elector goes on reading, with pauses of at most four seconds, so Leader recovers when the
// record is repaired. The errors [ErrClosed], [ErrUnsupported] and [ErrInvalid] are final.
func (e *Elector) Leader(ctx context.Context) (Info, error) {
	e.observing.Do(e.startFollowing)
	if newest := e.newest.Load(); newest != nil {
		return newest.info, newest.err
	}
	select {
	case <-e.seen:
	case <-ctx.Done():
		return Info{}, ctx.Err()
	}
	newest := e.newest.Load()
	return newest.info, newest.err
}

// startFollowing starts the goroutine that follows the name. The keeper owns it.
func (e *Elector) startFollowing() {
	if err := e.k.startOwned(e.follow); err != nil {
		e.newest.Store(&observed{err: err})
		close(e.seen)
	}
}

// follow keeps newest up to date until the keeper is closed. An observation ends when the store refuses to read the name; the
// next one begins after a pause.
func (e *Elector) follow() {
	first := sync.OnceFunc(func() { close(e.seen) })
	var last observed
	for fails := 0; ; fails++ {
		for info, err := range e.k.Observe(e.k.working, e.name) {
			switch {
			case err == nil:
				fails = 0
				last = observed{info: info}
			case e.k.calling.Err() != nil:
				last.err = errKeeperClosed
			default:
				last.err = err
			}
			newest := last
			e.newest.Store(&newest)
			first()
		}
		if refusedForGood(last.err) || !pause(e.k.calling, pauseAfter(fails, observePeriod)) {
			break
		}
	}
	if e.k.calling.Err() != nil {
		last.err = errKeeperClosed
		e.newest.Store(&last)
	}
}

// refusedForGood reports whether an observation that has ended with an error would end with it again.
func refusedForGood(err error) bool {
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrInvalid)
}
