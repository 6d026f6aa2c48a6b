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

// Method is one method of a store.
type Method string

// The methods that go over a [Network].
const (
	Any          Method = ""
	Get          Method = "get"
	Swap         Method = "swap" // also one swap of many, then without a name
	List         Method = "list"
	Observe      Method = "observe"
	Sweep        Method = "sweep"
	RaiseFloor   Method = "raise the floor"
	Remove       Method = "remove"
	Listen       Method = "listen" // fails if its request is lost; no other fault applies
	Acknowledge  Method = "acknowledge"
	Acknowledged Method = "acknowledged"
)

// writes reports whether a lost answer leaves the effect on the store unknown.
func (m Method) writes() bool { return !slices.Contains([]Method{Get, List, Listen, Acknowledged}, m) }

// Call is one call or, as a pattern, all calls like it.
type Call struct {
	Method Method
	Name   string // of the record; empty if none, or any
}

// Fault is what goes wrong with a call. Its fields add up. The zero Fault is a call without a fault.
type Fault struct {
	// Delay is how long the request travels, and Back how long the answer does. A request arrives even if its
	// caller no longer waits.
	Delay, Back time.Duration
	// LoseRequest loses the request, LoseAnswer the answer. The caller gets an error when the answer would have
	// come.
	LoseRequest, LoseAnswer bool
	// Twice makes the request arrive a second time, after this further delay.
	Twice time.Duration
	// Stale answers a Get or a List with records as they were at an earlier one, if there was one. No store may
	// do so to a Get.
	Stale bool
	// Err is the answer. The store does not get the request.
	Err error
}

// Network carries calls to a store. It has the store's optional abilities, or an equivalent: it swaps many one
// by one, judges nothing, and keeps no clock records.
type Network struct {
	store  claim.Store
	ctx    context.Context // ends when no call is to arrive from then on
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
	times int // how often it still applies; negative means without end
	fault Fault
}

// delivery is one call that is under way.
type delivery struct {
	broken    chan struct{} // closed when there will be no answer
	forgotten chan struct{} // closed when the request will not arrive either
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

// Faulty returns s as it is seen over a network. Calls have only the faults of [Network.Inject] and
// [Network.Plan]. Closing it closes s.
func Faulty(s claim.Store) *Network {
	n := &Network{store: s, seen: make(map[string][2]claim.Found), plan: func(Call) Fault { return Fault{} }}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.closed = make(chan struct{})
	n.close = sync.OnceFunc(func() { close(n.closed) })
	return n
}

// Inject applies f to the next calls that match where, or to all of them if times is zero. It returns a
// function that ends that.
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

// Plan lets decide choose the fault of each call that no injected fault matches. Calls wait for it one by one.
func (n *Network) Plan(decide func(Call) Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plan = decide
}

// ChangePrimary breaks all calls that are under way because of a [Fault]: none gets an answer. Requests that
// have not arrived yet arrive at their time, or never if the new primary is to forget them.
func (n *Network) ChangePrimary(forget bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.underWay {
		w.breaks(forget)
	}
}

// faultOf returns the fault of a call. The caller holds the lock.
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

// lost returns the error of a call that got no answer.
func (n *Network) lost(c Call, why error) error {
	kind := backend.ErrUnavailable
	if c.Method.writes() {
		kind = backend.ErrUnknownOutcome
	}
	return fmt.Errorf("%s: %s: %w: %w", n.store.Scheme(), c.Method, kind, why)
}

// depart starts a call, with its fault.
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

// sleep waits for d. It returns false if the request or answer is not to arrive after that.
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

// answer is the result of one call of a store.
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
		case <-w.broken: // no answer comes, not even that a request was forgotten
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

// travel executes one call with its fault, even if its caller no longer waits.
func travel[T any](n *Network, c Call, w *delivery, f Fault, do func(context.Context) (T, error)) (a answer[T]) {
	if arrives := n.sleep(w, f.Delay); !arrives || f.LoseRequest {
		n.sleep(w, f.Back)
		return answer[T]{err: n.lost(c, errNoAnswer)}
	}
	a.value, a.err = do(context.WithValue(n.ctx, staleKey{}, f.Stale))
	if f.Twice > 0 {
		n.running.Go(func() {
			if n.sleep(newDelivery(), f.Twice) {
				_, _ = do(n.ctx) // no caller waits for this answer
			}
		})
	}
	n.sleep(w, f.Back)
	if f.LoseAnswer {
		return answer[T]{err: n.lost(c, errNoAnswer)}
	}
	return a
}

// Close waits until all calls under way have arrived, or drops them when the context ends, and closes the
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
