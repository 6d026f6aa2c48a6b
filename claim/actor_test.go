package claim_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// world is one database, and the time that passes for all its users.
type world struct {
	*testing.T
	memory *claimtest.Memory
	actors []*actor
	ids    uint64
	wall   time.Time
}

func newWorld(t *testing.T, o ...claimtest.MemoryOption) *world {
	return &world{T: t, memory: claimtest.NewMemory(o...), wall: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)}
}

// pass lets real time pass. Each machine's clocks advance by as much of it as they show.
func (w *world) pass(d time.Duration) {
	w.wall = w.wall.Add(d)
	for _, a := range w.actors {
		a.clocks.move(a.shows(d), a.shows(d))
	}
	w.memory.Advance(d)
}

func (w *world) id() (id backend.ID) {
	w.ids++
	binary.BigEndian.PutUint64(id[:], w.ids)
	return id
}

// machineClocks are the clocks of one machine.
type machineClocks struct {
	mu   sync.Mutex
	hand *clock.Manual
}

func newHands(at time.Duration) *machineClocks {
	return &machineClocks{hand: clock.NewManual(clock.Instant{}.Add(at))}
}

func (h *machineClocks) Now() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hand.Now()
}

func (h *machineClocks) Moved() <-chan struct{} { return nil }

func (h *machineClocks) move(raw, boot time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hand.AdvanceBy(raw, boot)
}

// actor is a process with a client of its own.
type actor struct {
	*world
	*claim.Client
	name   string
	clocks *machineClocks
	ppm    int64 // how much faster its clocks are
	wire   *wire
}

// shows returns how much of d the actor's clocks show.
func (a *actor) shows(d time.Duration) time.Duration { return d + d/1e6*time.Duration(a.ppm) }

// actor adds a machine with one process. Its clocks show at.
func (w *world) actor(name string, at time.Duration, change ...func(*claim.Options)) *actor {
	w.Helper()
	return w.process(name, newHands(at), clock.Domain(name), w.memory.Open(), change...)
}

// process adds a process. The first process on a machine moves the machine's clocks.
func (w *world) process(name string, clocks *machineClocks, d clock.Domain, s *claimtest.Client, change ...func(*claim.Options)) *actor {
	w.Helper()
	a := &actor{world: w, name: name, clocks: clocks, wire: &wire{Client: s, calls: make(map[string]int)}}
	o := claim.Options{
		Clock: clocks, Domain: d, Drift: 1, Wall: func() time.Time { return w.wall },
		Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
	for _, c := range change {
		c(&o)
	}
	c, err := claim.NewClient(a.wire, o)
	if err != nil {
		w.Fatal(err)
	}
	a.Client = c
	for _, other := range w.actors {
		if other.clocks == clocks {
			return a
		}
	}
	w.actors = append(w.actors, a)
	return a
}

// plain adds a process that sees its store as one without optional abilities.
func (w *world) plain(name string, clocks *machineClocks) *actor {
	w.Helper()
	a := w.process(name, clocks, clock.Domain(name), w.memory.Open())
	c, err := claim.NewClient(claimtest.Plain(a.wire), claim.Options{Clock: clocks, Domain: clock.Domain(name), Drift: 1})
	if err != nil {
		w.Fatal(err)
	}
	a.Client = c
	return a
}

// onSameMachine adds another process on the machine of a.
func (a *actor) onSameMachine(name string, change ...func(*claim.Options)) *actor {
	a.Helper()
	return a.process(name, a.clocks, clock.Domain(a.name), a.memory.Open(), change...)
}

func (a *actor) request(name string, ttl time.Duration) claim.Request {
	return claim.Request{Name: name, ID: a.id(), Holder: backend.Holder{ID: a.name}, TTL: ttl}
}

func (a *actor) try(name string, ttl time.Duration) (*claim.Lease, error) {
	return a.Claim(a.Context(), a.request(name, ttl))
}

// hold claims a name, which must succeed.
func (a *actor) hold(name string, ttl time.Duration) *claim.Lease {
	a.Helper()
	l, err := a.try(name, ttl)
	if err != nil {
		a.Fatalf("%s claims %s: %v", a.name, name, err)
	}
	return l
}

// refused claims a name, which must be held, and returns the longest time until the lease expires.
func (a *actor) refused(name string) time.Duration {
	a.Helper()
	_, err := a.try(name, time.Minute)
	var held *backend.HeldError
	if !errors.As(err, &held) {
		a.Fatalf("%s claims %s: %v, not that it is held", a.name, name, err)
	}
	return held.Ends
}

func (a *actor) extend(l *claim.Lease, ttl time.Duration) {
	a.Helper()
	if err := a.Extend(a.Context(), l, ttl); err != nil {
		a.Fatalf("%s extends %s: %v", a.name, l.Name(), err)
	}
}

func (a *actor) state(name string) claim.State {
	a.Helper()
	s, err := a.Get(a.Context(), name)
	if err != nil {
		a.Fatal(err)
	}
	return s
}

// remains returns how long the holder may still rely on a lease.
func (a *actor) remains(l *claim.Lease) time.Duration { return a.Now().Remaining(l.Until()) }

// is checks the kind of an error; nil means no error.
func (w *world) is(what string, err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) || kind != nil && err == nil {
		w.Errorf("%s: %v, not %v", what, err, kind)
	}
}

func same[T comparable](w *world, what string, got, want T) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %v, not %v", what, got, want)
	}
}

// wire is the connection between a process and the database.
type wire struct {
	*claimtest.Client
	mu     sync.Mutex
	calls  map[string]int
	parked []claim.Swap
	// before is called before a swap of an existing record arrives, after it was sent.
	before func(claim.Swap)
	// making is called once, after the next request to create a record was sent.
	making func()
	// slow is called once for the next swap: after it has arrived or was lost, and before its answer.
	slow func()
	// next lists the faults of the next swaps: "lost" (the request), "unanswered", "parked", "unavailable".
	// first lists those of swaps that create a record.
	next, first []string
	// down is the error of every read; nil if reads succeed.
	down error
}

var errTorn = fmt.Errorf("%w: the wire is torn", backend.ErrUnknownOutcome)

func (w *wire) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[what]++
}

// counted returns how many calls of each kind there were since the last call of counted.
func (w *wire) counted() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer clear(w.calls)
	return fmt.Sprint(w.calls)
}

func (w *wire) Get(ctx context.Context, name string) (claim.Found, error) {
	w.count("get")
	if w.down != nil {
		return claim.Found{}, w.down
	}
	f, err := w.Client.Get(ctx, name)
	if !f.Record.Exists() {
		f.Record.Name = "" // stores need not set it
	}
	return f, err
}

func (w *wire) GetAll(ctx context.Context, names []string) ([]claim.Found, error) {
	w.count("get all")
	if w.down != nil {
		return nil, w.down
	}
	return w.Client.GetAll(ctx, names)
}

func (w *wire) Observe(ctx context.Context, name string, d clock.Domain, op claim.Op, at clock.Instant) (clock.Instant, error) {
	w.count("observe")
	return w.Client.Observe(ctx, name, d, op, at)
}

func (w *wire) Swap(ctx context.Context, s claim.Swap) (bool, error) {
	w.count("swap")
	if w.before != nil && s.Old != (claim.Op{}) {
		w.before(s)
	}
	fates := &w.next
	if s.Old == (claim.Op{}) {
		fates = &w.first
		if first := w.making; first != nil {
			w.making = nil
			defer first()
		}
	} else {
		defer w.dawdle()
	}
	switch w.fate(fates) {
	case "lost":
		return false, errTorn
	case "unanswered":
		_, _ = w.Client.Swap(context.WithoutCancel(ctx), s)
		return false, errTorn
	case "parked":
		w.mu.Lock()
		defer w.mu.Unlock()
		w.parked = append(w.parked, s)
		return false, errTorn
	case "bare":
		_, _ = w.Client.Swap(context.WithoutCancel(ctx), s)
		return false, context.DeadlineExceeded
	case "unavailable":
		return false, fmt.Errorf("%w: it is down", backend.ErrUnavailable)
	}
	return w.Client.Swap(ctx, s)
}

func (w *wire) SwapAll(ctx context.Context, swaps []claim.Swap) ([]bool, error) {
	w.count("swap all")
	switch w.fate(&w.next) {
	case "lost":
		return nil, errTorn
	case "unanswered":
		_, _ = w.Client.SwapAll(ctx, swaps)
		return nil, errTorn
	case "unavailable":
		return nil, fmt.Errorf("%w: it is down", backend.ErrUnavailable)
	}
	return w.Client.SwapAll(ctx, swaps)
}

func (w *wire) dawdle() {
	if slow := w.slow; slow != nil {
		w.slow = nil
		slow()
	}
}

// fate takes the fault of the next swap from the list.
func (w *wire) fate(fates *[]string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(*fates) == 0 {
		return ""
	}
	fate := (*fates)[0]
	*fates = (*fates)[1:]
	return fate
}

// arrive delivers the parked writes, and returns how many of them happened.
func (w *wire) arrive() (happened int) {
	w.mu.Lock()
	parked := w.parked
	w.parked = nil
	w.mu.Unlock()
	for _, s := range parked {
		if done, err := w.Client.Swap(context.Background(), s); done && err == nil {
			happened++
		}
	}
	return happened
}

// held reports whether the record of a name has a holder.
func (a *actor) held(name string) bool {
	a.Helper()
	s := a.state(name)
	return s.Record.Held()
}
