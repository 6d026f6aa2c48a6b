package simulation

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// dice are random streams, one for each purpose, so that a change in one does not change the others.
type dice struct{ world, network, disk, faults, work, lengths, finish, ranks, users *rand.Rand }

func newDice(seed uint64) dice {
	of := func(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, purpose)) }
	return dice{of(1), of(2), of(3), of(4), of(5), of(6), of(8), of(9), of(11)}
}

// world is the whole state of a run.
type world struct {
	swarm
	drawn swarm // the swarm as the seed drew it; the embedded one changes in the run
	seed  uint64
	dice  dice
	now   int64 // real time in nanoseconds
	queue agenda

	members []*member
	clients []*client
	network network
	// administrator changes users and roles; nil in worlds without users.
	administrator *administrator
	plan          []fault
	calm          bool    // the faults have stopped
	looked        int64   // real time of the last check
	led           int64   // real time for which a member had authority
	steady        *member // the leader that must lead until the end; nil before

	// idle is the real time in which no leader committed commands. applying and writing say since when the leader has not
	// made progress.
	idle              []span
	applying, writing progress

	over             bool   // clients have stopped
	calls, puts, ids uint64 // numbers of the newest

	changes  map[uint64]*membersChange // the orders to change the members, by number
	accident *copied                   // nil: none has happened

	facts   facts
	marks   marks
	trace   trace
	failure *Failure
	events  int
}

const noPanic = "no panic"

// A Failure is an invariant that was broken.
type Failure struct {
	Invariant string
	Facts     string
	At        time.Duration // real time since the start
}

// Result is the outcome of a run.
type Result struct {
	Seed    uint64
	Failure *Failure // nil if nothing was found
	Events  int
	Marks   []string // the marks that the run saw; see wanted
	Led     float64  // the share of the time in which a member had authority
	Trace   uint64   // a checksum of all events
	About   string   // the drawn swarm, as text
	Last    []string // the last events

	swarm swarm
}

// Run runs the world of a seed to its end, or until an invariant is broken.
func Run(seed uint64, options Options) (result Result) {
	w := newWorld(seed, options)
	defer func() {
		if broken := recover(); broken != nil {
			w.fail(noPanic, "%v\n%s", broken, debug.Stack())
		}
		result = w.outcome()
		w.close()
	}()
	w.play()
	return result
}

func newWorld(seed uint64, options Options) *world {
	w := &world{seed: seed, dice: newDice(seed), marks: make(marks), changes: make(map[uint64]*membersChange)}
	w.swarm = draw(w.dice.world, seed, options)
	w.drawn = w.swarm
	w.facts = newFacts(w)
	w.network = newNetwork(w)
	for i := range w.slots() {
		w.members = append(w.members, newMember(w, i))
	}
	for i := range w.swarm.clients {
		w.clients = append(w.clients, newClient(w, i))
	}
	if w.users > 0 {
		w.administrator = newAdministrator(w)
	}
	return w
}

// play runs the world: first with faults, then without.
func (w *world) play() {
	for _, m := range w.founders() {
		w.after(w.upTo(w.dice.world, 200*time.Millisecond), m.start)
	}
	for _, c := range w.clients {
		w.after(w.upTo(w.dice.world, 100*time.Millisecond), c.act)
	}
	if w.administrator != nil {
		w.after(0, w.administer)
	}
	w.makePlan()
	if w.copies {
		w.after(2*time.Second, w.putBackCopy)
		w.until(w.length + copiesLength)
		w.checkCopied()
		return
	}
	if w.wipes {
		w.after(2*time.Second, w.wipe)
		w.until(w.length + copiesLength)
		return
	}
	w.until(w.length)
	if w.failure == nil {
		w.settle()
	}
}

// until handles the events up to a moment.
func (w *world) until(end time.Duration) {
	for w.failure == nil && w.queue.len() > 0 && w.queue.first().at <= int64(end) {
		next := w.queue.pop()
		w.now = next.at
		next.do()
		w.events++
		w.checkAlways()
	}
	if w.failure == nil {
		w.now = int64(end)
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.queue.push(w.now+int64(max(0, d)), do)
}

// upTo draws a length of time.
func (w *world) upTo(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(d) + 1))
}

// chance draws true with probability p.
func chance(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }

func (w *world) fail(invariant, format string, args ...any) {
	if w.accident != nil && invariant != silentFork && invariant != foundedAgain && invariant != noPanic {
		return // the accident voids all other promises
	}
	if w.failure == nil {
		w.failure = &Failure{Invariant: invariant, Facts: fmt.Sprintf(format, args...) + "\n" + w.situation(), At: time.Duration(w.now)}
	}
}

func (w *world) outcome() Result {
	return Result{
		Seed: w.seed, Failure: w.failure, Events: w.events, Marks: w.marks.list(),
		Led: float64(w.led) / float64(max(1, w.now)), Trace: w.trace.sum, About: w.about(), Last: w.trace.last(),
		swarm: w.drawn,
	}
}

func (w *world) close() {
	for _, m := range w.members {
		m.closeDatabase()
	}
}

// agenda is the heap of coming events, ordered by time and then by insertion.
type agenda struct {
	heap  []item
	count uint64
}

type item struct {
	at    int64
	order uint64
	do    func()
}

func (a item) before(b item) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

func (a *agenda) len() int    { return len(a.heap) }
func (a *agenda) first() item { return a.heap[0] }

func (a *agenda) push(at int64, do func()) {
	a.count++
	a.heap = append(a.heap, item{at, a.count, do})
	for i := len(a.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !a.heap[i].before(a.heap[parent]) {
			break
		}
		a.heap[i], a.heap[parent] = a.heap[parent], a.heap[i]
		i = parent
	}
}

func (a *agenda) pop() item {
	top, end := a.heap[0], len(a.heap)-1
	a.heap[0] = a.heap[end]
	a.heap[end] = item{}
	a.heap = a.heap[:end]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < end; child++ {
			if a.heap[child].before(a.heap[least]) {
				least = child
			}
		}
		if least == i {
			return top
		}
		a.heap[i], a.heap[least] = a.heap[least], a.heap[i]
		i = least
	}
}
