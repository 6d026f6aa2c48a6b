package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Options restrict what a seed draws. The zero value leaves everything to the seed.
type Options struct {
	// Members is the number of members; 0 draws 3 or 5.
	Members int
	// Length is how long faults happen, in real time; 0 means [DefaultLength].
	Length time.Duration
	// Faultless draws no faults.
	Faultless bool
	// Rates bounds the error of clocks in parts per million; 0 means the drift bound.
	Rates int64
	// Idle draws no clients.
	Idle bool
	// Stress selects what happens all the time.
	Stress Stress
	// Eager is the probability of eager elections; 0 means 0.75, negative means never.
	Eager float64
}

// Stress names what happens all the time in a world.
type Stress string

// The kinds of stress. Any other value means none.
const (
	Orders  Stress = "orders"  // leaders are ordered to hand over, and orders to campaign arrive late
	Clocks  Stress = "clocks"  // machines are suspended, and clocks slewed
	Disks   Stress = "disks"   // disks stall, and machines crash
	Starts  Stress = "starts"  // members restart, often with another length of the master lease
	Turns   Stress = "turns"   // leaders are isolated for a while, and soon lead again
	Names   Stress = "names"   // clients transfer names, pin them, and write the keys that they guard
	Lapses  Stress = "lapses"  // several leaders in a row are lost, and clients fall silent
	Copies  Stress = "copies"  // an old copy of a data directory is put back, which breaks an assumption; see copy.go
	Wipes   Stress = "wipes"   // a majority of data directories is emptied, which breaks an assumption; see copy.go
	Changes Stress = "changes" // members are added, promoted and removed, also the leader
	Few     Stress = "few"     // the same, with one member at first and at most three voters
	Ranks   Stress = "ranks"   // claims have priorities, and clients prefer waiting claims
	Users   Stress = "users"   // access is enabled, and a user's right comes and goes
	Boasts  Stress = "boasts"  // members acknowledge entries that their leader never had
)

// applyStress changes a swarm to have a kind of stress.
func (s *swarm) applyStress(kind Stress) {
	switch kind {
	case Orders:
		s.faults = [faultKinds]float64{order: 3, deafness: 0.5, pause: 0.5}
		s.lateOrders, s.lost, s.eager = 0.7, 0.02, true
	case Clocks:
		s.faults = [faultKinds]float64{suspend: 1, slew: 1}
		s.eager, s.delay, s.leaderBias = true, 200*time.Microsecond, 0.9
	case Disks:
		s.faults = [faultKinds]float64{stall: 2, powerCut: 0.3, kill: 0.3}
		s.eager, s.leaderBias = true, 0.9
	case Starts:
		s.faults = [faultKinds]float64{powerCut: 0.5, kill: 0.5, order: 0.5}
		s.eager, s.otherLengths, s.rhythm, s.sudden = true, true, 15*time.Millisecond, 0.02
	case Turns:
		s.faults = [faultKinds]float64{isolation: 0.7, order: 2}
		s.eager, s.leaderBias, s.rhythm = true, 0.9, 15*time.Millisecond
	case Names:
		s.faults = [faultKinds]float64{isolation: 0.3, kill: 0.3, order: 1}
		s.leaderBias, s.rhythm, s.tenants = 0.9, 15*time.Millisecond, 0.7
	case Lapses:
		s.faults = [faultKinds]float64{leaderLosses: 0.5, silence: 0.7}
		s.leaderBias, s.rhythm = 1, 15*time.Millisecond
	case Copies, Wipes:
		*s = swarm{
			members: 3, clients: 3, length: s.length, logKeep: s.logKeep, drift: s.drift, rhythm: 15 * time.Millisecond,
			delay: s.delay, diskDelay: s.diskDelay, lost: s.lost, doubled: s.doubled, copies: kind == Copies, wipes: kind == Wipes,
		}
	case Changes:
		s.faults = [faultKinds]float64{reshaping: 4, order: 0.3, powerCut: 0.2, kill: 0.3, isolation: 0.2}
		s.eager, s.leaderBias, s.spares, s.mostVoters = true, 0.6, 12, 5
	case Few:
		s.faults = [faultKinds]float64{reshaping: 3, order: 0.2, powerCut: 0.15, kill: 0.15, isolation: 1}
		s.members, s.eager, s.leaderBias, s.spares, s.mostVoters = 1, true, 0.6, 16, 3
	case Ranks:
		s.faults = [faultKinds]float64{isolation: 0.3, kill: 0.3, order: 1}
		s.leaderBias, s.rhythm, s.tenants, s.ranks = 0.9, 15*time.Millisecond, 0.8, 0.7
	case Users:
		s.faults = [faultKinds]float64{isolation: 0.3, kill: 0.3, order: 1}
		s.leaderBias, s.rhythm, s.users = 0.9, 15*time.Millisecond, 0.5
	case Boasts:
		s.faults = [faultKinds]float64{isolation: 0.3, powerCut: 0.5, kill: 0.5}
		s.leaderBias, s.rhythm, s.boasts = 0.9, 15*time.Millisecond, 0.05
	}
}

// copiesLength is how long all members take to find out about an accident.
const copiesLength = 4 * time.Second

// DefaultLength is how long faults happen in a run.
const DefaultLength = 8 * time.Second

// swarm is what one seed draws: a subset of the faults, and the rate of each.
type swarm struct {
	members, clients int
	length           time.Duration
	eager            bool
	drift            clock.Drift
	rates            int64 // bound of the clocks' errors, in parts per million
	logKeep          uint64
	rhythm           time.Duration // between two actions of a client

	delay, diskDelay time.Duration
	// Probabilities: that a message between members is lost, is repeated, or arrives very late; that an order to campaign
	// arrives very late; that a call of a client or its answer is lost.
	lost, doubled, late, lateOrders, lostCalls float64
	// Probabilities that a process pauses while it performs the effects of a step, or of an answer from memory.
	stumble, hesitate float64
	faults            [faultKinds]float64 // faults per second, by kind
	leaderBias        float64             // probability that a fault hits the leader
	sudden            float64             // probability that a leader ends right after it acknowledged a put
	tenants           float64             // probability that a client uses names rather than anything
	ranks             float64             // probability that a claim has a priority; clients prefer claims only if it is above 0
	finishers         float64             // probability that a client that uses names finishes a tenure
	users             float64             // probability that a put is of a user whose right comes and goes; 0: there are no users
	copies            bool                // an old copy of a data directory is put back
	wipes             bool                // a majority of data directories is emptied
	boasts            float64             // probability that an acknowledgement is of entries that no member has
	spares            int                 // machines that may become members
	mostVoters        int                 // where machines are spare: voters beyond it are removed
	otherLengths      bool                // members restart with shorter and longer master leases
}

// keptLog is longer than any log in a run, so that no member ever needs the whole state.
const keptLog = 10_000

// draw draws a swarm.
func draw(r *rand.Rand, seed uint64, o Options) swarm {
	s := swarm{
		members: 3, clients: 3, length: DefaultLength, eager: chance(r, 0.75), logKeep: keptLog,
		drift:      []clock.Drift{clock.DefaultDrift, 45_000, 100_000}[r.IntN(3)],
		rhythm:     []time.Duration{15 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond}[r.IntN(3)],
		delay:      []time.Duration{200 * time.Microsecond, 1 * time.Millisecond, 5 * time.Millisecond}[r.IntN(3)],
		diskDelay:  []time.Duration{100 * time.Microsecond, 1 * time.Millisecond, 5 * time.Millisecond}[r.IntN(3)],
		leaderBias: 0.6,
	}
	if chance(r, 0.25) {
		s.members = 5
	}
	if chance(r, 0.5) {
		s.logKeep = uint64(2 + r.IntN(20))
	}
	if !o.Faultless && seed%10 != 0 {
		s.drawFaults(r)
		s.otherLengths = seed%5 == 1
		if seed%5 == 2 {
			s.sudden = 0.01
		}
	}
	s.finishers, s.users = drawFinishers(seed), drawUsers(seed)
	s.applyStress(o.Stress)
	if o.Idle {
		s.clients = 0
	}
	if o.Members != 0 {
		s.members = o.Members
	}
	if o.Length != 0 {
		s.length = o.Length
	}
	s.rates = int64(s.drift)
	if o.Rates != 0 {
		s.rates = o.Rates
	}
	switch {
	case o.Eager < 0:
		s.eager = false
	case o.Eager > 0:
		s.eager = chance(r, o.Eager)
	}
	return s
}

func (s *swarm) drawFaults(r *rand.Rand) {
	some := func(p float64, values ...float64) float64 {
		if !chance(r, p) {
			return 0
		}
		return values[r.IntN(len(values))]
	}
	s.lost = some(0.4, 0.01, 0.05, 0.2)
	s.doubled = some(0.4, 0.02, 0.2)
	s.late = some(0.4, 0.005, 0.03)
	s.lateOrders = some(0.5, 0.5)
	s.lostCalls = some(0.5, 0.02, 0.1)
	s.stumble = some(0.5, 0.003, 0.02)
	s.hesitate = some(0.3, 0.05, 0.2)
	for range 1 + r.IntN(4) { // with more kinds, there would hardly ever be a leader to disturb
		s.faults[r.IntN(drawnKinds)] = []float64{0.2, 0.5, 1}[r.IntN(3)]
	}
}

func (w *world) about() string {
	var b strings.Builder
	fmt.Fprintf(&b, "members %d, eager %v, drift %d ppm, rates up to %d ppm, log keep %d, delay %v, disk %v, lost %v, doubled %v, late %v, late orders %v, lost calls %v, stumble %v, hesitate %v, sudden ends %v, other lengths %v",
		w.swarm.members, w.eager, w.drift, w.rates, w.logKeep, w.delay, w.diskDelay, w.lost, w.doubled, w.late, w.lateOrders, w.lostCalls, w.stumble, w.hesitate, w.sudden, w.otherLengths)
	for k, rate := range w.faults {
		if rate > 0 {
			fmt.Fprintf(&b, ", %s %v/s", faultNames[k], rate)
		}
	}
	return b.String()
}
