package claimtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Method is one of what can be asked of a store.
type Method string

// The methods that go over a [Network].
const (
	Any          Method = ""
	Get          Method = "get"
	Swap         Method = "swap" // and what is swapped among many, which has no name
	List         Method = "list"
	Observe      Method = "observe"
	Sweep        Method = "sweep"
	RaiseFloor   Method = "raise the floor"
	Remove       Method = "remove"
	Listen       Method = "listen" // it is refused if its request is lost; there is no more that can go wrong
	Acknowledge  Method = "acknowledge"
	Acknowledged Method = "acknowledged"
)

// writes says whether a lost answer leaves open what happened to the store.
func (m Method) writes() bool { return !slices.Contains([]Method{Get, List, Listen, Acknowledged}, m) }

// Call is one call, or all calls that are like it.
type Call struct {
	Method Method
	Name   string // which record; empty if none, or any
}

// Fault is what goes wrong with a call. What it says adds up; the zero Fault is that all goes well.
type Fault struct {
	// Delay is how long the request is on its way, and Back how long the answer is. A request whose caller
	// does not wait any longer arrives nevertheless.
	Delay, Back time.Duration
	// LoseRequest lets the request never arrive, LoseAnswer the answer. The caller is told, at the time at
	// which the answer would have come, that there is none.
	LoseRequest, LoseAnswer bool
	// Twice lets the request arrive a second time, so long after the first.
	Twice time.Duration
	// Stale answers a Get or a List with records as they were at an earlier one, if there was one. No store
	// may do so to a Get.
	Stale bool
	// Err is the answer, and the store is not asked.
	Err error
}

// Network carries calls to a store. It can do whatever the store can do, or else what comes to the same: it
// swaps many one by one, judges nothing, and knows no clock records.
type Network struct {
	store  claim.Store
	ctx    context.Context // ends when nothing is to arrive any more
	cancel context.CancelFunc
	close  func()
	closed chan struct{}

	mu       sync.Mutex
	injected []*injected
	plan     func(Call) Fault
	underWay []*delivery
	seen     map[string][2]claim.Found // of each name the last two different answers, older first
	running  sync.WaitGroup
}

type injected struct {
	where Call
	times int // how often yet; less than zero is without end
	fault Fault
}

// way is that of one call that is under way.
type delivery struct {
	broken    chan struct{} // closed when there will be no answer
	forgotten chan struct{} // closed when it will not arrive either
	breaks    func(forget bool)
}

func newDelivery() *delivery {
	w := &delivery{broken: make(chan struct{}), forgotten: make(chan struct{})}
	var once sync.Once
	w.breaks = func(forget bool) {
		once.Do(func() {
			close(w.broken)
			if forget {
				close(w.forgotten)
			}
		})
	}
	return w
}

// Faulty returns s as it is seen over a network. Nothing goes wrong on it but what [Network.Inject] and
// [Network.Plan] say. To close it closes s.
func Faulty(s claim.Store) *Network {
	n := &Network{store: s, seen: make(map[string][2]claim.Found), plan: func(Call) Fault { return Fault{} }}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.closed = make(chan struct{})
	n.close = sync.OnceFunc(func() { close(n.closed) })
	return n
}

// Inject lets f befall the next calls that are like where, or all of them if times is zero. It returns what
// ends that.
func (n *Network) Inject(where Call, times int, f Fault) (remove func()) {
	if times <= 0 {
		times = -1
	}
	added := &injected{where, times, f}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.injected = append(n.injected, added)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.injected = slices.DeleteFunc(n.injected, func(other *injected) bool { return other == added })
	}
}

// Plan lets decide say what befalls each call that nothing injected befalls. Calls wait for it one by one.
func (n *Network) Plan(decide func(Call) Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plan = decide
}

// ChangePrimary breaks all calls that a [Fault] keeps on their way: none gets an answer. What of them has not
// arrived yet does so at its time, or never, if the new primary is to forget it.
func (n *Network) ChangePrimary(forget bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.underWay {
		w.breaks(forget)
	}
}

// befalls returns what goes wrong with a call. The caller has the lock.
func (n *Network) faultOf(c Call) Fault {
	for _, i := range n.injected {
		if i.times != 0 && (i.where.Method == Any || i.where.Method == c.Method) && (i.where.Name == "" || i.where.Name == c.Name) {
			i.times--
			return i.fault
		}
	}
	return n.plan(c)
}

var (
	errNoAnswer   = errors.New("no answer came")
	errNewPrimary = errors.New("the primary has changed")
)

// lost is the error of a call that got no answer.
func (n *Network) lost(c Call, why error) error {
	kind := backend.ErrUnavailable
	if c.Method.writes() {
		kind = backend.ErrUnknownOutcome
	}
	return fmt.Errorf("%s: %s: %w: %w", n.store.Scheme(), c.Method, kind, why)
}

// depart sends a call on its way, with what goes wrong with it.
func (n *Network) depart(ctx context.Context, c Call) (*delivery, Fault, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.closed:
		return nil, Fault{}, fmt.Errorf("%s: %s: %w", n.store.Scheme(), c.Method, backend.ErrClosed)
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, Fault{}, fmt.Errorf("%s: %s: %w: %w", n.store.Scheme(), c.Method, backend.ErrUnavailable, err)
	}
	f := n.faultOf(c)
	if f.Err != nil {
		return nil, Fault{}, fmt.Errorf("%s: %s: %w", n.store.Scheme(), c.Method, f.Err)
	}
	w := newDelivery()
	n.underWay = append(n.underWay, w)
	n.running.Add(1)
	return w, f, nil
}

func (n *Network) arrive(w *delivery) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.underWay = slices.DeleteFunc(n.underWay, func(other *delivery) bool { return other == w })
	n.running.Done()
}

// sleep lets time pass, and says whether what is on its way is still to arrive after it.
func (n *Network) sleep(w *delivery, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.forgotten:
	case <-n.ctx.Done():
	}
	return false
}

// answer is what a store said.
type answer[T any] struct {
	value T
	err   error
}

// carry carries one call to the store, and its answer back.
func carry[T any](ctx context.Context, n *Network, c Call, do func(context.Context) (T, error)) (T, error) {
	var none T
	w, f, err := n.depart(ctx, c)
	if err != nil {
		return none, err
	}
	back := make(chan answer[T], 1)
	if f == (Fault{}) {
		defer n.arrive(w)
		return do(ctx)
	}
	go func() {
		defer n.arrive(w)
		back <- travel(n, c, w, f, do)
	}()
	select {
	case a := <-back:
		select {
		case <-w.broken: // nothing comes back that way, not even that something was forgotten
			return none, n.lost(c, errNewPrimary)
		default:
			return a.value, a.err
		}
	case <-ctx.Done():
		return none, n.lost(c, ctx.Err())
	case <-w.broken:
		return none, n.lost(c, errNewPrimary)
	}
}

// travel goes the way of one call, whether or not its caller still waits.
func travel[T any](n *Network, c Call, w *delivery, f Fault, do func(context.Context) (T, error)) (a answer[T]) {
	if arrives := n.sleep(w, f.Delay); !arrives || f.LoseRequest {
		n.sleep(w, f.Back)
		return answer[T]{err: n.lost(c, errNoAnswer)}
	}
	a.value, a.err = do(context.WithValue(n.ctx, staleKey{}, f.Stale))
	if f.Twice > 0 {
		n.running.Go(func() {
			if n.sleep(newDelivery(), f.Twice) {
				_, _ = do(n.ctx) // nobody waits for its answer
			}
		})
	}
	n.sleep(w, f.Back)
	if f.LoseAnswer {
		return answer[T]{err: n.lost(c, errNoAnswer)}
	}
	return a
}

// Close waits until all that is on its way has arrived, or loses it when the context ends, and closes the
// store.
func (n *Network) Close(ctx context.Context) error {
	n.mu.Lock()
	n.close()
	n.mu.Unlock()
	arrived := make(chan struct{})
	go func() {
		n.running.Wait()
		close(arrived)
	}()
	select {
	case <-arrived:
	case <-ctx.Done():
	}
	n.cancel()
	<-arrived
	return n.store.Close(ctx)
}
