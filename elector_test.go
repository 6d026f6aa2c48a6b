package leasekeeper_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// observing follows a name, and keeps what it yielded.
type observing struct {
	mu     sync.Mutex
	states []leasekeeper.Info
	err    error
}

func observe(ctx context.Context, k *leasekeeper.Keeper, name string) *observing {
	o := new(observing)
	go func() {
		for info, err := range k.Observe(ctx, name) {
			o.mu.Lock()
			if err == nil {
				o.states = append(o.states, info)
			}
			o.err = err
			o.mu.Unlock()
		}
	}()
	return o
}

// last returns the last state, and how many there were.
func (o *observing) last(w *world) (leasekeeper.Info, int) {
	w.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.states) == 0 {
		w.Fatal("no state was observed")
	}
	return o.states[len(o.states)-1], len(o.states)
}

// Observe yields each change of one name, and nothing about other names, renewals or the queue.
func TestObserveYieldsChangesOfOneName(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		b, _ := w.keeper("b")
		watcher, _ := w.keeper("watcher")
		ctx, cancel := context.WithCancel(w.Context())
		o := observe(ctx, watcher, "x")
		if i, n := o.last(w); i.Held || i.Name != "x" || n != 1 {
			w.Errorf("of a name that was never held: %+v, %d states", i, n)
		}
		l := w.must(a.Acquire(w.Context(), "x"))
		w.must(a.Acquire(w.Context(), "x/y"))
		next := make(chan *leasekeeper.Lease, 1)
		go func() { next <- w.must(b.Acquire(w.Context(), "x")) }()
		time.Sleep(10 * ttl) // renewals
		if i, n := o.last(w); !i.Held || i.Token != l.Token() || i.Holder.ID != "a" || n != 2 {
			w.Errorf("after a acquired it: %+v, %d states", i, n)
		}
		w.is(l.Announce(w.Context(), "card"), nil)
		if i, n := o.last(w); i.Holder.Card.Text != "card" || n != 3 {
			w.Errorf("after a announced a card: %+v, %d states", i, n)
		}
		w.is(l.Release(w.Context()), nil)
		second := <-next
		if i, n := o.last(w); i.Token != second.Token() || n > 5 {
			w.Errorf("after b acquired it: %+v, %d states", i, n)
		}
		cancel()
		synctest.Wait()
		w.is(o.err, context.Canceled)
	})
}

// Observe goes on when the store restarts, loses the watch, or fails for a while.
func TestObserveGoesOnOverFailures(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		watcher, client := w.keeper("watcher")
		o := observe(w.Context(), watcher, "x")
		synctest.Wait()
		for _, fails := range []func() func(){
			func() func() { w.store.Restart(); return func() {} },
			func() func() { return client.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Any}) },
			func() func() { // the watch is dead, and says nothing
				remove := client.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Watch})
				w.store.Restart()
				return remove
			},
		} {
			mend := fails()
			time.Sleep(time.Second)
			l := w.must(a.Acquire(w.Context(), "x"))
			time.Sleep(time.Second)
			mend()
			time.Sleep(ttl + time.Second)
			if i, _ := o.last(w); i.Token != l.Token() || !i.Held {
				w.Errorf("observed %+v, not token %d", i, l.Token())
			}
			w.is(l.Release(w.Context()), nil)
			time.Sleep(ttl + time.Second)
			if i, _ := o.last(w); i.Held {
				w.Errorf("observed %+v after the release", i)
			}
		}
		w.is(watcher.Shutdown(w.Context()), nil)
		synctest.Wait()
		w.is(o.err, leasekeeper.ErrClosed)
	})
}

// An elector knows whether it leads, and all electors know who leads.
func TestElectorKnowsItsLeader(t *testing.T) {
	bubble(t, func(w *world) {
		var electors [2]*leasekeeper.Elector
		var stop [2]context.CancelFunc
		var ended [2]chan error
		for i, id := range []string{"a", "b"} {
			k, _ := w.keeper(id)
			e, err := k.NewElector("leader", leasekeeper.WithCard("at "+id))
			if err != nil {
				w.Fatal(err)
			}
			if info, err := e.Leader(w.Context()); err != nil || info.Held != (i > 0) || e.IsLeader() || e.Lease() != nil {
				w.Errorf("before it campaigns: %+v, %v, it leads: %v", info, err, e.IsLeader())
			}
			ctx, cancel := context.WithCancel(w.Context())
			electors[i], stop[i], ended[i] = e, cancel, make(chan error, 1)
			go func() {
				ended[i] <- e.Campaign(ctx, func(ctx context.Context, l *leasekeeper.Lease) error {
					if !e.IsLeader() || e.Lease() != l {
						w.Error("it does not know that it leads")
					}
					<-ctx.Done()
					return nil
				})
			}()
			synctest.Wait()
		}
		for i, e := range electors {
			if info, err := e.Leader(w.Context()); err != nil || info.Holder.Card.Text != "at a" || e.IsLeader() != (i == 0) {
				w.Errorf("elector %d: %+v, %v, it leads: %v", i, info, err, e.IsLeader())
			}
		}
		stop[0]()
		w.is(<-ended[0], context.Canceled)
		synctest.Wait()
		for i, e := range electors {
			if info, err := e.Leader(w.Context()); err != nil || info.Holder.Card.Text != "at b" || e.IsLeader() != (i == 1) {
				w.Errorf("elector %d: %+v, %v, it leads: %v", i, info, err, e.IsLeader())
			}
		}
		stop[1]()
		w.is(<-ended[1], context.Canceled)
	})
}

// An elector stops leading when its lease is over, whatever its function does.
func TestElectorDoesNotLeadWithoutItsLease(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		e, err := k.NewElector("leader")
		if err != nil {
			w.Fatal(err)
		}
		returns := make(chan struct{})
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- e.Campaign(ctx, func(context.Context, *leasekeeper.Lease) error { <-returns; return nil })
		}()
		synctest.Wait()
		remove := stalled(b)
		time.Sleep(relied)
		if e.IsLeader() || e.Lease() != nil {
			w.Error("it leads after its lease is over")
		}
		remove()
		cancel()
		close(returns)
		w.is(<-ended, context.Canceled)
	})
}

// An elector of a closed keeper, or one that is asked in vain, says so.
func TestElectorWithoutAnAnswerSaysWhy(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		_, err := k.NewElector("//")
		w.is(err, leasekeeper.ErrInvalid)
		_, err = k.NewElector("x", leasekeeper.WithTTL(-1))
		w.is(err, leasekeeper.ErrInvalid)
		e, err := k.NewElector("x")
		w.is(err, nil)
		remove := b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Get})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		_, err = e.Leader(ctx)
		w.is(err, context.DeadlineExceeded)
		remove()
		w.is(k.Shutdown(w.Context()), nil)
		_, err = e.Leader(w.Context())
		w.is(err, leasekeeper.ErrClosed)
		late, err := k.NewElector("y")
		w.is(err, nil)
		_, err = late.Leader(w.Context())
		w.is(err, leasekeeper.ErrClosed)
		w.is(late.Campaign(w.Context(), nil), leasekeeper.ErrClosed)
	})
}

// A record that cannot be read does not end what an elector knows for good: the elector says so, and recovers.
func TestElectorRecoversFromARecordThatCannotBeRead(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		other, _ := w.keeper("b")
		e, err := k.NewElector("x")
		w.is(err, nil)
		damage := func() (repair func()) {
			return b.Inject(memory.Fault{Kind: memory.Refuse, Op: memory.Get, Err: backend.ErrCorrupt})
		}
		repair := damage()
		_, err = e.Leader(w.Context())
		w.is(err, leasekeeper.ErrCorrupt)
		repair()
		time.Sleep(5 * time.Second)
		info, err := e.Leader(w.Context())
		if err != nil || info.Held {
			w.Errorf("after the repair: %+v, %v", info, err)
		}
		first := w.must(other.Acquire(w.Context(), "x"))
		synctest.Wait()
		repair = damage()
		w.is(first.Release(w.Context()), nil)
		synctest.Wait()
		info, err = e.Leader(w.Context())
		w.is(err, leasekeeper.ErrCorrupt)
		if info.Token != first.Token() || !info.Held {
			w.Errorf("while the record is damaged: %+v, want the newest state that was seen", info)
		}
		time.Sleep(time.Hour) // the pauses do not grow without a limit
		repair()
		time.Sleep(5 * time.Second)
		info, err = e.Leader(w.Context())
		if err != nil || info.Held {
			w.Errorf("after the second repair: %+v, %v", info, err)
		}
	})
}

// pastHalf waits until less than half of a lease is left.
func pastHalf(l *leasekeeper.Lease) {
	for l.Remaining() > relied/2-time.Second/2 {
		time.Sleep(time.Second / 4)
	}
}

// A lease in doubt says so, says that it is renewed again, and ends its channel when it ends.
func TestLeaseReportsDoubtAndRecovery(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		l := w.must(k.Acquire(w.Context(), "x"))
		doubt := l.InDoubt()
		quiet := func(what string) {
			w.Helper()
			select {
			case v, open := <-doubt:
				w.Errorf("%s: received %v, open: %v", what, v, open)
			default:
			}
		}
		time.Sleep(3 * ttl)
		quiet("renewed")
		remove := stalled(b)
		if v, open := <-doubt; !v || !open {
			w.Errorf("in doubt: %v, open: %v", v, open)
		}
		if l.Check() != nil {
			w.Error("a lease in doubt is lost")
		}
		remove()
		time.Sleep(ttl / 3)
		if v, open := <-doubt; v || !open {
			w.Errorf("renewed again: %v, open: %v", v, open)
		}
		remove = stalled(b)
		pastHalf(l)
		remove()
		time.Sleep(ttl / 3)
		if v, open := <-doubt; v || !open {
			w.Errorf("the channel has %v, open: %v, and not the newest value", v, open)
		}
		w.is(l.Release(w.Context()), nil)
		if _, open := <-doubt; open {
			w.Error("the channel of a released lease is open")
		}
		if _, open := <-l.InDoubt(); open {
			w.Error("a later call returns another channel")
		}
		other := w.must(k.Acquire(w.Context(), "y"))
		remove = stalled(b)
		defer remove()
		pastHalf(other)
		if v := <-other.InDoubt(); !v {
			w.Error("the first call comes when the lease is in doubt, and does not report that")
		}
	})
}

// A read of the name that is never answered does not end an observation.
func TestObserveGoesOnAfterAReadWithoutAnAnswer(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		watcher, client := w.keeper("watcher")
		for _, times := range []int{1, 3} {
			client.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Get, Times: times})
			ctx, cancel := context.WithCancel(w.Context())
			o := observe(ctx, watcher, "x")
			l := w.must(a.Acquire(w.Context(), "x"))
			time.Sleep(time.Duration(times) * ttl)
			if i, _ := o.last(w); i.Token != l.Token() {
				w.Errorf("observed %+v, not token %d", i, l.Token())
			}
			cancel()
			w.is(l.Release(w.Context()), nil)
		}
	})
}

// zoned is a store whose answers have the same times in a zone of their own each.
type zoned struct{ *memory.Backend }

func (z zoned) Get(ctx context.Context, name string) (backend.Info, error) {
	i, err := z.Backend.Get(ctx, name)
	i.Holder.Card.Started = i.Holder.Card.Started.In(time.FixedZone("local", 7200))
	return i, err
}

// The same time in another zone is no change.
func TestObserveYieldsNoChangeOfZones(t *testing.T) {
	bubble(t, func(w *world) {
		a, _ := w.keeper("a")
		w.must(a.Acquire(w.Context(), "x"))
		watcher := w.on(zoned{w.store.Backend()}, "watcher")
		ctx, cancel := context.WithCancel(w.Context())
		o := observe(ctx, watcher, "x")
		time.Sleep(10 * ttl)
		if i, n := o.last(w); n != 1 {
			w.Errorf("%+v is yielded %d times", i, n)
		}
		cancel()
	})
}

// lingering is a backend whose watches return a second after their contexts have ended.
type lingering struct {
	*memory.Backend
	watches atomic.Int32
}

func (l *lingering) Watch(ctx context.Context, prefix string, report func(backend.Event)) error {
	l.watches.Add(1)
	defer l.watches.Add(-1)
	err := l.Backend.Watch(ctx, prefix, report)
	time.Sleep(time.Second)
	return err
}

// Close waits for the watches of observers before it closes the store.
func TestCloseWaitsForWatchesOfObservers(t *testing.T) {
	bubble(t, func(w *world) {
		l := &lingering{Backend: w.store.Backend()}
		k := w.on(l, "a")
		o := observe(w.Context(), k, "x")
		synctest.Wait()
		w.is(k.Close(), nil)
		if n := l.watches.Load(); n != 0 {
			w.Errorf("%d watches go on", n)
		}
		synctest.Wait()
		w.is(o.err, leasekeeper.ErrClosed)
	})
}

// An elector returns what it knows already, even if the context of the call has ended.
func TestElectorThatKnowsItsLeaderNeedsNoContext(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		e, err := k.NewElector("x")
		w.is(err, nil)
		_, err = e.Leader(w.Context())
		w.is(err, nil)
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		for range 100 {
			if _, err := e.Leader(ended); err != nil {
				w.Fatal(err)
			}
		}
	})
}

// --- close_test.go

// The body of a loop over Observe does not delay Close, and may itself close the keeper.
func TestCloseDoesNotWaitForTheBodyOfAnObservation(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		for range k.Observe(w.Context(), "x") {
			if late := took(func() { w.is(k.Close(), nil) }); late != 0 {
				w.Errorf("closed after %v", late)
			}
			break
		}
	})
}

// reads is a backend that counts reads, and gives a read without an answer the error of its context.
type reads struct {
	*memory.Backend
	n    atomic.Int32
	lost int32 // how many reads get no answer at first
}

func (r *reads) Get(ctx context.Context, name string) (backend.Info, error) {
	if r.n.Add(1) <= r.lost {
		<-ctx.Done()
		return backend.Info{}, ctx.Err()
	}
	return r.Backend.Get(ctx, name)
}

// Observe goes on when a backend reports a read without an answer by the error of its context.
func TestObserveGoesOnAfterAReadThatTookTooLong(t *testing.T) {
	bubble(t, func(w *world) {
		k := w.on(&reads{Backend: w.store.Backend(), lost: 1}, "a")
		ctx, cancel := context.WithCancel(w.Context())
		o := observe(ctx, k, "x")
		time.Sleep(ttl)
		if i, _ := o.last(w); i.Name != "x" {
			w.Errorf("%+v", i)
		}
		cancel()
	})
}

// Changes of names that begin like the observed one cause no reads.
func TestObserveReadsNothingWhenOtherNamesChange(t *testing.T) {
	bubble(t, func(w *world) {
		r := &reads{Backend: w.store.Backend()}
		k := w.on(r, "a")
		ctx, cancel := context.WithCancel(w.Context())
		observe(ctx, k, "x")
		synctest.Wait()
		before := r.n.Load()
		for range 10 {
			w.is(w.must(k.Acquire(w.Context(), "x/y")).Release(w.Context()), nil)
			synctest.Wait()
		}
		if n := r.n.Load() - before; n != 0 {
			w.Errorf("%d reads", n)
		}
		cancel()
	})
}

// Observe sees a change that no watch reports.
func TestObserveSeesChangesWithoutAWatch(t *testing.T) {
	bubble(t, func(w *world) {
		k, b := w.keeper("a")
		b.Inject(memory.Fault{Kind: memory.Stall, Op: memory.Watch})
		ctx, cancel := context.WithCancel(w.Context())
		o := observe(ctx, k, "x")
		synctest.Wait()
		l := w.must(k.Acquire(w.Context(), "x"))
		time.Sleep(leasekeeper.DefaultTTL)
		if i, _ := o.last(w); i.Token != l.Token() {
			w.Errorf("observed %+v, not token %d", i, l.Token())
		}
		cancel()
	})
}

// An elector whose campaign ends no longer leads, although its function still runs. After Close it returns the newest
// state that it saw, with the error.
func TestElectorThatResignsDoesNotLead(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper("a")
		e, err := k.NewElector("x")
		w.is(err, nil)
		returns, ended := make(chan struct{}), make(chan error, 1)
		ctx, cancel := context.WithCancel(w.Context())
		go func() {
			ended <- e.Campaign(ctx, func(context.Context, *leasekeeper.Lease) error { <-returns; return nil })
		}()
		synctest.Wait()
		before, err := e.Leader(w.Context())
		if err != nil || !before.Held || !e.IsLeader() {
			w.Errorf("%+v, %v, it leads: %v", before, err, e.IsLeader())
		}
		cancel()
		if e.IsLeader() {
			w.Error("it leads after its campaign was cancelled")
		}
		w.holder("x", "a")
		close(returns)
		w.is(<-ended, context.Canceled)
		synctest.Wait()
		w.is(k.Close(), nil)
		if after, err := e.Leader(w.Context()); !errors.Is(err, leasekeeper.ErrClosed) || after.Token != before.Token {
			w.Errorf("%+v, %v", after, err)
		}
	})
}
