package claimtest_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// A world is some machines, processes that start and end on them, and one store, in the time of a bubble. Each
// process reaches the store over a bad network of its own. The observer of the world knows real time, and every
// lease on which a process relies.

const (
	worldLength = 5 * time.Minute
	worldDrift  = clock.DefaultDrift
)

var worldNames = []string{markedName, "leader"}

// markedName is the name that gets marks.
const markedName = "jobs/nightly"

// world is one run.
type world struct {
	*rand.Rand // for the faults of the world as a whole
	sabotage
	seed   uint64
	began  time.Time
	store  *claimtest.Memory
	direct *claimtest.Client
	all    sync.WaitGroup

	mu        sync.Mutex
	networks  []*claimtest.Network
	machines  []*machine
	released  map[backend.ID]bool // whose holders have called Release
	relied    map[string][]*tenure
	givenBy   map[tenureOf]backend.ID   // the incarnation that has released it
	committed map[string][]tenureID     // claims in the order of their writes
	reported  map[tenureID]bool         // those that were reported as successful
	marks     map[string][]backend.Mark // in the order of their writes
	resumed   map[backend.Token]bool
	heldOn    map[backend.ID]heldOn // what Finish was asked for, by incarnation
	counts    map[string]int
	diary     bool
	log       []string
	wrong     string
}

// sabotage breaks something on which the algorithm depends, so that the world must fail.
type sabotage struct {
	name string
	want string // in the finding
	swap func(w *claim.Swap, now claim.Record)
	// observe changes the first observation that a store returns.
	observe func(clock.Instant) clock.Instant
	floor   bool // RaiseFloor does nothing
	stale   bool // Get is answered with an earlier state
	again   bool // a machine keeps its domain over a reboot
	both    bool // both clocks of a machine are wrong
	drift   clock.Drift
	// judges puts the world in store-clock mode, which is no sabotage.
	judges bool
}

// heldOn is a name that its holder wants to be held on.
type heldOn struct {
	machine *machine
	until   clock.Instant
}

type tenureID struct {
	incarnation backend.ID
	token       backend.Token
}

type tenureOf struct {
	name  string
	token backend.Token
}

// tenure is a lease that a process was granted.
type tenure struct {
	name    string
	lease   *claim.Lease
	machine *machine
	who     string
	over    bool // its process no longer relies on it
}

// relies reports whether the process, if it lives, may rely on the lease now.
func (t *tenure) relies() bool { return !t.over && t.machine.Now().Before(t.lease.Until()) }

func newWorld(seed uint64, s sabotage) *world {
	w := &world{
		Rand: random(seed), sabotage: s, seed: seed, began: time.Now(), store: claimtest.NewMemory(),
		relied: make(map[string][]*tenure), committed: make(map[string][]tenureID),
		marks: make(map[string][]backend.Mark), resumed: make(map[backend.Token]bool), heldOn: make(map[backend.ID]heldOn),
		reported: make(map[tenureID]bool), released: make(map[backend.ID]bool), givenBy: make(map[tenureOf]backend.ID), counts: make(map[string]int),
	}
	w.direct = w.open()
	return w
}

// open returns a client without faults.
func (w *world) open() *claimtest.Client {
	c, err := w.store.OpenNamespace("", w.judges)
	if err != nil {
		panic(err)
	}
	return c
}

// fail keeps the first finding. The caller holds the lock.
func (w *world) fail(format string, args ...any) {
	w.note(format, args...)
	if w.wrong == "" {
		w.wrong = fmt.Sprintf("after %v: ", time.Since(w.began)) + fmt.Sprintf(format, args...)
	}
}

// note writes the diary. The caller holds the lock.
func (w *world) note(format string, args ...any) {
	if w.diary {
		w.log = append(w.log, fmt.Sprintf("%12v ", time.Since(w.began))+fmt.Sprintf(format, args...))
	}
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// boot returns a machine that has just been started.
func (w *world) boot(r *rand.Rand) *machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Now and then the process begins on a machine that already runs others.
	if n := len(w.machines); n > 0 && r.IntN(3) == 0 {
		return w.machines[n-1]
	}
	drift, what := clock.Drift(worldDrift), temper(r.IntN(tempers))
	if w.drift != 0 {
		drift = w.drift
	}
	if w.both { // on every other machine
		what = []temper{steady, both}[len(w.machines)%2]
	}
	d := clock.Domain(fmt.Sprintf("boot %d", len(w.machines)))
	if w.again {
		d = "the same boot"
	}
	m := newMachine(r, d, w.began, 10*worldLength, drift, what)
	w.machines = append(w.machines, m)
	return m
}

// watched is the store with an observer that sees every write at the moment at which it happens.
type watched struct {
	*claimtest.Client
	w *world
}

func (s *watched) Swap(ctx context.Context, swap claim.Swap) (bool, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	f, err := s.Client.Get(ctx, swap.Record.Name)
	if err != nil {
		return false, err
	}
	if s.w.sabotage.swap != nil {
		s.w.sabotage.swap(&swap, f.Record)
	}
	done, err := s.Client.Swap(ctx, swap)
	if done && err == nil {
		s.w.written(&f.Record, &swap.Record)
	}
	return done, err
}

func (s *watched) SwapAll(ctx context.Context, swaps []claim.Swap) ([]bool, error) {
	done := make([]bool, len(swaps))
	for i, swap := range swaps {
		var err error
		if done[i], err = s.Swap(ctx, swap); err != nil {
			return nil, err
		}
	}
	return done, nil
}

func (s *watched) Remove(ctx context.Context, name string, old claim.Op) (bool, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	f, err := s.Client.Get(ctx, name)
	if err != nil {
		return false, err
	}
	done, err := s.Client.Remove(ctx, name, old)
	if done {
		s.w.note("%s: removed, token %d", name, f.Record.Token)
		s.w.counts["removed"]++
		if f.Record.Held() || len(f.Record.Pins) > 0 || !f.Record.Mark.IsZero() {
			s.w.fail("the record of %s was removed while it was held or pinned, or had a mark", name)
		}
	}
	return done, err
}

func (s *watched) RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error) {
	if s.w.floor {
		return t, nil
	}
	return s.Client.RaiseFloor(ctx, t)
}

func (s *watched) Observe(ctx context.Context, name string, d clock.Domain, op claim.Op, at clock.Instant) (clock.Instant, error) {
	first, err := s.Client.Observe(ctx, name, d, op, at)
	if err == nil && s.w.observe != nil {
		first = s.w.observe(first)
	}
	return first, err
}

// written checks one write against all leases on which a process relies. The caller holds the lock.
func (w *world) written(old, next *claim.Record) {
	w.note("%s: token %d of %q %x in %s, written %v until %v; was token %d of %q", next.Name, next.Token, next.Holder,
		next.Incarnation[:2], next.Domain, next.Written, next.Expiry, old.Token, old.Holder)
	if next.Token < old.Token {
		w.fail("%s: token %d was written over %d", next.Name, next.Token, old.Token)
	}
	w.marked(old, next)
	if old.Held() && next.Token != old.Token {
		w.counts["ends"]++
		// A claim whose token is not above the floor takes another one before it is reported.
		if len(old.Pins) > 0 && !w.released[old.Incarnation] && next.Incarnation != old.Incarnation {
			w.fail("%s: token %d has ended while it was pinned", next.Name, old.Token)
		}
		w.ended(old, next)
	}
	if old.Held() && next.Held() && next.Token != old.Token {
		w.counts["takeovers"]++
	}
	if next.Held() && (next.Token != old.Token || !old.Held()) {
		w.committed[next.Name] = append(w.committed[next.Name], tenureID{next.Incarnation, next.Token})
	}
}

// marked checks that only the holder changes the mark, and only to a later tick. The caller holds the lock.
func (w *world) marked(old, next *claim.Record) {
	if next.Mark == old.Mark {
		return
	}
	raised, err := old.Mark.Raised(next.Mark.Tick, old.Token)
	if err != nil || next.Mark != raised || !old.Held() || next.Incarnation != old.Incarnation {
		w.fail("%s: the mark %q was written over %q, by %q under token %d", next.Name, next.Mark.Text(), old.Mark.Text(), next.Incarnation[:2], old.Token)
	}
	w.marks[next.Name] = append(w.marks[next.Name], next.Mark)
}

// ended checks that no process relies on a tenure that ends. A process that resumed it may release it without
// asking the previous holder.
func (w *world) ended(old, next *claim.Record) {
	if h := w.heldOn[old.Incarnation]; old.HeldOn() {
		w.counts["held on"]++
		if h.machine.Now().Before(h.until) {
			w.fail("%s: token %d was ended, and it was to be held on for another %v", old.Name, old.Token, h.machine.Now().Remaining(h.until))
		}
	}
	if w.released[old.Incarnation] {
		w.givenBy[tenureOf{old.Name, old.Token}] = old.Incarnation
	}
	for _, t := range w.relied[old.Name] {
		if t.lease.Token() != old.Token {
			continue
		}
		if w.resumedFrom(t); t.relies() {
			w.fail("%s: token %d was ended by %q of %s, and %s relies on it for another %v", old.Name, old.Token,
				next.Holder, next.Domain, t.who, t.machine.Now().Remaining(t.lease.Until()))
		}
	}
}

// resumedFrom ends the reliance on a tenure that another process resumed, and released.
func (w *world) resumedFrom(t *tenure) {
	by, given := w.givenBy[tenureOf{t.name, t.lease.Token()}]
	t.over = t.over || given && by != t.lease.Incarnation()
}

// acquired takes in a lease on which a process may rely from now.
func (w *world) acquired(t *tenure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	token := t.lease.Token()
	w.note("%s: %s was told that it has token %d until %v", t.name, t.who, token, t.lease.Until())
	w.counts["claims"]++
	w.resumedFrom(t)
	id := tenureID{t.lease.Incarnation(), token}
	w.reported[id] = true
	for _, other := range w.relied[t.name] {
		if other.lease.Token() != token && other.relies() && t.relies() {
			w.fail("%s: %s relies on token %d, and %s on token %d", t.name, t.who, token, other.who, other.lease.Token())
		}
	}
	w.relied[t.name] = append(w.relied[t.name], t)
	w.stillThere(t)
}

// stillThere checks that a lease is in the store while a process relies on it. The caller holds the lock.
func (w *world) stillThere(t *tenure) {
	f, err := w.direct.Get(context.Background(), t.name)
	if err != nil {
		w.fail("%v", err)
	}
	if t.relies() && (f.Record.Token != t.lease.Token() || !f.Record.Held()) {
		w.fail("%s: %s relies on token %d, and the store has token %d of %q", t.name, t.who, t.lease.Token(), f.Record.Token, f.Record.Holder)
	}
}

// finish checks what only the end shows: tokens have the order of the claims.
func (w *world) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range worldNames {
		var last backend.Token
		for _, id := range w.committed[name] {
			if !w.reported[id] {
				continue
			}
			if id.token <= last {
				w.fail("%s: token %d was given after %d", name, id.token, last)
			}
			last = id.token
		}
	}
}

// connect returns a new process's connection to the store. The fault of a call depends only on its number, so
// calls made at one moment may come in any order.
func (w *world) connect(seed uint64) *claimtest.Network {
	n := claimtest.Faulty(&watched{w.open(), w})
	made := make(map[claimtest.Call]uint64)
	n.Plan(func(c claimtest.Call) claimtest.Fault {
		made[c]++
		kind := fnv.New64()
		fmt.Fprint(kind, c)
		return w.fault(c, rand.New(rand.NewPCG(seed+made[c], kind.Sum64())))
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.networks = append(w.networks, n)
	return n
}

func (w *world) fault(c claimtest.Call, r *rand.Rand) claimtest.Fault {
	f := claimtest.Fault{Delay: delay(r), Back: delay(r)}
	switch p := r.IntN(100); {
	case p < 3:
		f.LoseRequest = true
	case p < 6:
		f.LoseAnswer = true
	case p < 9:
		f.Twice = delay(r)
	case p < 10:
		f.Err = backend.ErrUnavailable
	}
	f.Stale = c.Method == claimtest.List && r.IntN(4) == 0 || w.stale && c.Method == claimtest.Get && r.IntN(2) == 0
	return f
}

// delay returns a delay from a millisecond to a minute, most often a short one.
func delay(r *rand.Rand) time.Duration {
	return time.Duration(float64(time.Millisecond) * math.Pow(60_000, math.Pow(r.Float64(), 4)))
}

// run runs the world, and returns what was wrong with it.
func (w *world) run() string {
	for i := range 5 {
		r := rand.New(rand.NewPCG(w.Uint64(), uint64(i)))
		w.all.Go(func() { w.runProcesses(r) })
	}
	for time.Since(w.began) < worldLength {
		time.Sleep(time.Second + time.Duration(w.Int64N(int64(90*time.Second))))
		w.mu.Lock()
		all := slices.Clone(w.networks)
		w.note("the primary changes")
		w.mu.Unlock()
		for _, n := range all {
			n.ChangePrimary(w.IntN(2) == 0)
			time.Sleep(time.Duration(w.Int64N(int64(time.Millisecond)))) // so that no two of them see it at the same moment
		}
	}
	w.all.Wait()
	w.settle()
	w.finish()
	return w.wrong
}

// settle waits until no call is under way.
func (w *world) settle() {
	for _, n := range w.networks {
		if err := n.Close(context.Background()); err != nil {
			w.fail("%v", err)
		}
	}
}

func runWorld(t *testing.T, seed uint64, s sabotage, diary bool) (w *world) {
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(seed, s)
		w.diary = *oneSeed != 0 || diary
		w.run()
		if w.wrong == "" {
			w.takeAll()
		}
	})
	if *oneSeed != 0 {
		t.Logf("seed %d:\n%s", seed, strings.Join(w.log, "\n"))
	}
	return w
}

const worldSeeds = 25

func TestWorldKeepsItsPromises(t *testing.T) { checkWorlds(t, sabotage{}) }

// A world in store-clock mode keeps its promises too.
func TestWorldOfStoreClockKeepsItsPromises(t *testing.T) { checkWorlds(t, sabotage{judges: true}) }

func checkWorlds(t *testing.T, s sabotage) {
	counts := make(map[string]int)
	failWithFirst(t, seeds(worldSeeds, func(seed uint64) string {
		w := runWorld(t, seed, s, false)
		for what, n := range w.counts {
			counts[what] += n
		}
		return w.wrong
	}))
	t.Logf("what happened: %v", counts)
	for _, what := range []string{"claims", "extends", "ends", "takeovers", "unknown", "lost", "crashes", "reboots", "resumptions", "pins", "removed", "releases", "finishes", "recorded", "held on"} {
		if *oneSeed == 0 && counts[what] < worldSeeds/2 {
			t.Errorf("%s: %d in %d worlds is too little to show anything", what, counts[what], worldSeeds)
		}
	}
}

// A world with the same seed runs in the same way.
func TestWorldRepeatsForASeed(t *testing.T) {
	for seed := range uint64(5) {
		first, second := runWorld(t, seed+1, sabotage{}, true), runWorld(t, seed+1, sabotage{}, true)
		if len(first.log) < 100 {
			t.Fatalf("the diary of seed %d has %d lines", seed+1, len(first.log))
		}
		for i, line := range first.log {
			if i >= len(second.log) || second.log[i] != line {
				t.Fatalf("with seed %d, line %d of %d is once\n%s\nand once\n%s", seed+1, i, len(first.log), line, second.log[min(i, len(second.log)-1)])
			}
		}
	}
}

// The observer detects each fault: each of these worlds breaks something on which the algorithm depends.
func TestWorldDetectsSabotage(t *testing.T) {
	expiry := func(to func(r *claim.Record)) func(*claim.Swap, claim.Record) {
		return func(w *claim.Swap, _ claim.Record) {
			if w.Record.Held() {
				to(&w.Record)
			}
		}
	}
	for _, s := range []sabotage{
		{name: "SwapComparesNothing", want: "relies on", swap: func(w *claim.Swap, now claim.Record) { w.Old = now.Op }},
		{name: "RecordsPromiseLess", want: "relies on", swap: expiry(func(r *claim.Record) { r.Expiry = r.Expiry.Add(-r.TTL / 2) })},
		{name: "WrittenIsLater", want: "relies on", swap: expiry(func(r *claim.Record) { r.Written = r.Written.Add(r.TTL / 2) })},
		{name: "PromisesAreCut", want: "relies on", swap: expiry(func(r *claim.Record) { r.Expiry = r.Written.Add(r.TTL) })},
		{name: "ObservedBefore", want: "relies on", observe: func(at clock.Instant) clock.Instant { return at.Add(-10 * time.Second) }},
		{name: "HeldOnForLess", want: "held on", swap: func(w *claim.Swap, _ claim.Record) {
			if w.Record.HeldOn() {
				w.Record.Expiry = w.Record.Written.Add(w.Record.TTL / 2)
			}
		}},
		{name: "MarksAreForgotten", want: "was written over", swap: func(w *claim.Swap, _ claim.Record) {
			if w.Owner && w.Record.Held() {
				w.Record.Mark = backend.Mark{}
			}
		}},
		{name: "NoFloor", want: "was given after", floor: true},
		{name: "DomainWithNewClocks", want: "relies on", again: true},
		{name: "BothClocksAreWrong", want: "relies on", both: true},
		{name: "ReadsAreStale", want: "is lost, which is false", stale: true},
		{name: "ClocksBeyondTheStores", want: "relies on", judges: true, drift: 500_000},
		{name: "ClocksBeyondTheBound", want: "relies on", drift: 500_000},
	} {
		t.Run(s.name, func(t *testing.T) {
			seed, wrong := firstSeed(3*worldSeeds, func(seed uint64) string {
				if wrong := runWorld(t, seed, s, false).wrong; strings.Contains(wrong, s.want) {
					return wrong
				}
				return "" // nothing, or a finding that shows less
			})
			if wrong == "" {
				t.Errorf("none of %d seeds has found it out", seed)
			}
			t.Logf("found out by seed %d: %s", seed, wrong)
		})
	}
}
