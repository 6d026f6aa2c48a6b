package claimed_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

const ttl = 10 * time.Second

// site is a store with processes around it, in a bubble.
type site struct {
	*testing.T
	memory *claimtest.Memory
	next   func() claim.Options
}

// bubble runs a test in a bubble. next makes the options of each process.
func bubble(t *testing.T, next func() func() claim.Options, do func(t *testing.T, w *site)) {
	synctest.Test(t, func(t *testing.T) {
		do(t, &site{t, claimtest.NewMemory(), next()})
	})
}

// process is a backend with a network to the store. The network counts calls and can have faults.
type process struct {
	*claimed.Backend
	*site
	network *claimtest.Network

	mu    sync.Mutex
	calls map[claimtest.Method]int
	plan  func(claimtest.Call) claimtest.Fault
}

func (w *site) process(o ...claimed.Option) *process {
	w.Helper()
	way := claimtest.Faulty(w.memory.Open())
	p := &process{site: w, network: way, calls: make(map[claimtest.Method]int)}
	way.Plan(func(c claimtest.Call) claimtest.Fault {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls[c.Method]++
		if p.plan != nil {
			return p.plan(c)
		}
		return claimtest.Fault{}
	})
	p.Backend = backendOn(w, way, append([]claimed.Option{claimed.WithOptions(w.next())}, o...)...)
	w.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			w.Errorf("Close: %v", err)
		}
	})
	return p
}

// callsOf returns how many calls there were since its last call.
func (p *process) callsOf(m claimtest.Method) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.calls[m]
	p.calls[m] = 0
	return n
}

// faults sets the faults of calls that no injected fault matches.
func (p *process) faults(plan func(claimtest.Call) claimtest.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

func undecided(name, holder string, wait bool) backend.Claim {
	c := backend.Claim{Name: name, Holder: backend.Holder{ID: holder}, TTL: ttl, Wait: wait}
	_, _ = rand.Read(c.ID[:]) // never fails
	return c
}

func (p *process) hold(name, holder string) (backend.Lease, backend.Grant) {
	p.Helper()
	l, g, err := p.Claim(p.Context(), undecided(name, holder, false))
	if err != nil || !g.Held {
		p.Fatalf("%s claims %s: %+v, %v", holder, name, g, err)
	}
	return l, g
}

func (p *process) wait(name, holder string) backend.Lease {
	p.Helper()
	l, g, err := p.Claim(p.Context(), undecided(name, holder, true))
	if err != nil || g.Held {
		p.Fatalf("%s stands in line for %s: %+v, %v", holder, name, g, err)
	}
	return l
}

func (p *process) release(l backend.Lease) {
	p.Helper()
	if err := p.Release(p.Context(), l); err != nil {
		p.Fatalf("release of %s: %v", l.Name(), err)
	}
}

func (p *process) renew(leases ...backend.Lease) []backend.Renewal {
	p.Helper()
	got := make([]backend.Renewal, len(leases))
	if err := p.Renew(p.Context(), leases, func(i int, r backend.Renewal) { got[i] = r }); err != nil {
		p.Fatal(err)
	}
	return got
}

// keep renews leases until the returned function is called.
func (p *process) keep(leases ...backend.Lease) (stop func()) {
	ctx, cancel := context.WithCancel(p.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			for i, r := range p.renew(leases...) {
				if r.Err != nil {
					p.Errorf("%s: %v", leases[i].Name(), r.Err)
				}
			}
			select {
			case <-time.After(ttl / 3):
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); all.Wait() }
}

// awaiting awaits a turn on a goroutine, and renews the place meanwhile. The turn comes over the returned
// channel.
func (p *process) awaiting(l backend.Lease) <-chan turn {
	turns := make(chan turn, 1)
	go func() {
		stop := p.keep(l)
		g, err := p.Await(p.Context(), l)
		turns <- turn{p, l, g, err, time.Now()}
		stop()
	}()
	return turns
}

type turn struct {
	by    *process
	lease backend.Lease
	grant backend.Grant
	err   error
	at    time.Time
}

// A process asks twice a second, however many callers wait in it, and only if the store gives no hints.
func TestWaitersOfAProcessAskTwiceASecond(t *testing.T) {
	for _, many := range []int{1, 30} {
		bubble(t, oneMachine, func(t *testing.T, w *site) {
			holder, p := w.process(), w.process(claimed.WithOptions(w.next()))
			p.network.Inject(claimtest.Call{Method: claimtest.Listen}, 0, claimtest.Fault{Err: backend.ErrUnavailable})
			l, _ := holder.hold("x", "holder")
			stop := holder.keep(l)
			var turns []<-chan turn
			for i := range many {
				turns = append(turns, p.awaiting(p.wait("x", fmt.Sprint("w", i))))
			}
			synctest.Wait()
			p.callsOf(claimtest.Get)
			time.Sleep(100 * time.Second)
			if n := p.callsOf(claimtest.Get); n < 160 || n > 240 {
				t.Errorf("%d waiters asked %d times in 100 s", many, n)
			}
			if n := p.callsOf(claimtest.Swap); n != 0 {
				t.Errorf("%d waiters wrote %d times", many, n)
			}
			stop()
			holder.release(l)
			for i, c := range turns {
				got := <-c
				if got.err != nil {
					t.Fatalf("waiter %d: %v", i, got.err)
				}
				p.release(got.lease)
			}
		})
	}
}

// WithPoll sets how often a waiting process asks.
func TestPollIsTunable(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		holder, p := w.process(), w.process(claimed.WithPoll(10*time.Second))
		l, _ := holder.hold("x", "holder")
		stop := holder.keep(l)
		defer stop()
		turn := p.awaiting(p.wait("x", "waiter"))
		synctest.Wait()
		p.callsOf(claimtest.Get)
		time.Sleep(1000 * time.Second)
		// At most twice as often as the interval says: the process also asks when the known end of the lease
		// has passed.
		if n := p.callsOf(claimtest.Get); n < 80 || n > 200 {
			t.Errorf("asked %d times in 1000 s", n)
		}
		stop()
		holder.release(l)
		got := <-turn
		if got.err != nil {
			t.Fatal(got.err)
		}
		p.release(got.lease)
	})
	for _, every := range []time.Duration{0, -time.Second, time.Microsecond} {
		if b, err := claimed.New(claimtest.NewMemory().Open(), claimed.WithPoll(every)); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("every %v: %v, %v", every, b, err)
		}
	}
	if _, err := claimed.New(nil); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

// The waiters of one process get the name in the order of their claims. Each gets it as soon as the one before
// releases it, without a poll or a hint.
func TestWaitersOfAProcessAreServedInOrder(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process(claimed.WithPoll(time.Hour))
		p.network.Inject(claimtest.Call{Method: claimtest.Listen}, 0, claimtest.Fault{Err: backend.ErrUnavailable})
		l, _ := p.hold("x", "holder")
		stop := p.keep(l)
		var places []backend.Lease
		for i := range 20 {
			places = append(places, p.wait("x", fmt.Sprint("w", i)))
		}
		turns := make(map[int]<-chan turn)
		for i := range places { // the head of the local queue is the last to await
			turns[len(places)-1-i] = p.awaiting(places[len(places)-1-i])
		}
		time.Sleep(time.Second)
		stop()
		start := time.Now()
		p.release(l)
		for i := range places {
			got := <-turns[i]
			if got.err != nil || got.at.Sub(start) > time.Millisecond {
				t.Fatalf("waiter %d: %v after %v", i, got.err, got.at.Sub(start))
			}
			for later := i + 1; later < len(places); later++ {
				if len(turns[later]) > 0 {
					t.Errorf("waiter %d before waiter %d", later, i)
				}
			}
			p.release(got.lease)
		}
	})
}

// A waiter replaces a silent holder as soon as that is safe, on the same machine and on others, without a hint
// or a poll.
func TestSilentHolderIsReplacedOnTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		domain func() func() claim.Options
		most   time.Duration
	}{
		{"on the same machine", oneMachine, ttl},
		{"on another machine", machines, clock.DefaultDrift.WaitRemote(ttl)},
	} {
		bubble(t, c.domain, func(t *testing.T, w *site) {
			holder, p := w.process(), w.process(claimed.WithPoll(time.Hour))
			start := time.Now()
			holder.hold("x", "holder")
			got := <-p.awaiting(p.wait("x", "waiter"))
			if took := got.at.Sub(start); got.err != nil || took < ttl || took > c.most+time.Millisecond {
				t.Errorf("%s: %v after %v", c.name, got.err, took)
			}
			p.release(got.lease)
		})
	}
}

// A keeper's waiting claim keeps its place when Await is cancelled, as it is after each TTL.
func TestKeeperKeepsItsPlaceWhenAwaitIsCancelled(t *testing.T) {
	bubble(t, machines, func(t *testing.T, w *site) {
		a := keeperOn(t, w.process().Backend, "a")
		b := keeperOn(t, w.process().Backend, "b")
		held, err := a.Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		turn := make(chan *leasekeeper.Lease)
		go func() {
			l, err := b.Acquire(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			turn <- l
		}()
		time.Sleep(20 * ttl)
		if err := held.Check(); err != nil {
			t.Fatal(err)
		}
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := <-turn; l.Token() <= held.Token() {
			t.Errorf("%v after %v", l, held)
		}
	})
}

func keeperOn(t *testing.T, b backend.Backend, id string) *leasekeeper.Keeper {
	t.Helper()
	k, err := leasekeeper.New(b, leasekeeper.WithHolder(id), leasekeeper.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Shutdown(context.Background()); err != nil {
			t.Errorf("%s is closed: %v", id, err)
		}
	})
	return k
}

// A place without renewals is lost, Await returns when that is so, and no other waiter is delayed by it.
func TestUnrenewedPlaceIsLost(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		holder, p := w.process(), w.process(claimed.WithPoll(time.Hour))
		l, _ := holder.hold("x", "holder")
		stop := holder.keep(l)
		first := p.wait("x", "first")
		p.callsOf(claimtest.Get)
		second := p.wait("x", "second")
		if n := p.callsOf(claimtest.Get); n != 0 {
			t.Errorf("who stands behind others has asked %d times", n)
		}
		turns := p.awaiting(first)
		synctest.Wait()
		start := time.Now()
		if _, err := p.Await(t.Context(), second); !errors.Is(err, backend.ErrLost) || time.Since(start) > ttl+time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		stop()
		holder.release(l)
		got := <-turns
		// Asking for the name does not renew the place.
		asks := w.process()
		start = time.Now()
		if _, err := asks.Await(t.Context(), asks.wait("x", "asks")); !errors.Is(err, backend.ErrLost) || time.Since(start) > ttl+time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		p.release(got.lease)
		// No caller awaits this place, nor renews it.
		l, _ = holder.hold("x", "holder")
		p.wait("x", "third")
		time.Sleep(2 * ttl)
		holder.release(l)
		if _, g, err := p.Claim(t.Context(), undecided("x", "fourth", true)); err != nil || !g.Held {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

// A clock that is moved by hand wakes its waiters.
func TestMovedClocksWakeWaiters(t *testing.T) {
	clocks := memory.NewClock()
	store := claimtest.NewMemory()
	o := claimed.WithOptions(claim.Options{Clock: clocks, Domain: "machine"})
	holder := &process{Backend: backendOn(t, store.Open(), o), site: &site{T: t}}
	p := &process{Backend: backendOn(t, store.Open(), o, claimed.WithPoll(1000*time.Hour)), site: &site{T: t}}
	const long = 10 * time.Hour // so that no timer wakes a waiter
	held, waits := undecided("x", "holder", false), undecided("x", "waiter", true)
	held.TTL, waits.TTL = long, 10*long
	if _, _, err := holder.Claim(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	place, _, err := p.Claim(t.Context(), waits)
	if err != nil {
		t.Fatal(err)
	}
	turn := make(chan error)
	go func() { _, err := p.Await(t.Context(), place); turn <- err }()
	clocks.Suspend(long / 2) // one clock alone ends no lease
	clocks.Advance(long * 3 / 4)
	select {
	case err := <-turn:
		t.Fatalf("too early: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	clocks.Advance(long / 2)
	if err := <-turn; err != nil {
		t.Error(err)
	}
	for _, b := range []*process{holder, p} {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The backend forgets claims that have ended, also those that ended long ago and were never released.
func TestEndedClaimsAreForgotten(t *testing.T) {
	bubble(t, oneMachine, func(t *testing.T, w *site) {
		p := w.process()
		for i := range 100 {
			l, _ := p.hold("x", "a")
			place := p.wait("x", "b")
			if i%2 == 0 {
				p.release(place)
			}
			p.release(l)
			p.release(place)
		}
		if n := p.Remembered(); n != 0 {
			t.Errorf("%d claims, lines and watches are remembered", n)
		}
		const many = 3000
		for i := range many {
			p.hold(fmt.Sprint("y/", i), "a")
		}
		if n := p.Remembered(); n != many {
			t.Errorf("%d of %d claims are remembered", n, many)
		}
		time.Sleep(ttl + time.Hour)
		for i := range 2 * many {
			p.hold(fmt.Sprint("z/", i), "a")
		}
		if n := p.Remembered(); n > 2*many {
			t.Errorf("%d claims are remembered", n)
		}
	})
}
