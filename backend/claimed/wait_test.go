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

// process is a backend on a way to the store that counts calls and on which things can go wrong.
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

// made returns how many calls there were since it was asked last.
func (p *process) callsOf(m claimtest.Method) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.calls[m]
	p.calls[m] = 0
	return n
}

// sets what befalls calls that nothing is injected for.
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

// awaiting awaits a turn on a goroutine, which renews the place meanwhile. It returns where the turn is told.
func (p *process) awaiting(l backend.Lease) <-chan turn {
	told := make(chan turn, 1)
	go func() {
		stop := p.keep(l)
		g, err := p.Await(p.Context(), l)
		told <- turn{p, l, g, err, time.Now()}
		stop()
	}()
	return told
}

type turn struct {
	by    *process
	lease backend.Lease
	grant backend.Grant
	err   error
	at    time.Time
}

// Who waits asks twice a second, however many wait in one process, and only in a store that tells nothing.
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

// WithPoll is how often.
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
		// Twice as often as polled at the most: it looks when the end it knows of has passed, too.
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

// Who waits in one process has the name in the order of the claims, each as soon as the one before gives it
// back, and nobody else's poll or hint is needed for that.
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
		for i := range places { // the longest in line is the last to await
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

// A holder that falls silent is replaced by a waiter as soon as that is safe, on the same machine and
// on others, without a hint or a poll.
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

// A keeper whose claim stands in line holds on to it when Await is broken off, as it is after each TTL.
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
		if err := k.Close(context.Background()); err != nil {
			t.Errorf("%s is closed: %v", id, err)
		}
	})
	return k
}

// A place that nobody renews is lost, and who awaits it is told when that is so; it stands in nobody's way.
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
		told := p.awaiting(first)
		synctest.Wait()
		start := time.Now()
		if _, err := p.Await(t.Context(), second); !errors.Is(err, backend.ErrLost) || time.Since(start) > ttl+time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		stop()
		holder.release(l)
		got := <-told
		// To ask for the name is no renewal of the place.
		asks := w.process()
		start = time.Now()
		if _, err := asks.Await(t.Context(), asks.wait("x", "asks")); !errors.Is(err, backend.ErrLost) || time.Since(start) > ttl+time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		p.release(got.lease)
		// Nobody awaits this one, nor renews it.
		l, _ = holder.hold("x", "holder")
		p.wait("x", "third")
		time.Sleep(2 * ttl)
		holder.release(l)
		if _, g, err := p.Claim(t.Context(), undecided("x", "fourth", true)); err != nil || !g.Held {
			t.Errorf("%+v, %v", g, err)
		}
	})
}

// A clock that is moved by hand wakes those who wait for it.
func TestMovedClocksWakeWaiters(t *testing.T) {
	clocks := memory.NewClock()
	store := claimtest.NewMemory()
	o := claimed.WithOptions(claim.Options{Clock: clocks, Domain: "machine"})
	holder := &process{Backend: backendOn(t, store.Open(), o), site: &site{T: t}}
	p := &process{Backend: backendOn(t, store.Open(), o, claimed.WithPoll(1000*time.Hour)), site: &site{T: t}}
	const long = 10 * time.Hour // so that no timer wakes anybody
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
	clocks.Suspend(long / 2) // one clock alone does not end anything
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

// Of claims that are over nothing is kept, nor of those that ended long ago and were never released.
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
