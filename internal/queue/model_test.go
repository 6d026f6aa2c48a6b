package queue_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/queue"
)

// The model is one name, a table of tickets, and processes that wait with a [queue.Waiter] each. A process looks every
// lookEvery at most and acts on the look up to actAfter later, so others may have changed the table in between. Some
// processes stop for a while or end and leave their tickets. An operator prefers waiters: that moves a ticket to the front.
//
// The variants lack one rule each. A run of them must break a promise.
type queueModel struct {
	*rand.Rand
	variant string // "" or the rule that is missing: "pass", "adopt", "priority"

	now     time.Duration
	tickets []modelTicket // by order
	last    int64         // the last place that was given
	front   int64         // the last place that Prefer gave
	all     []*modelProcess
	holder  *modelProcess
	until   time.Duration // when the holder releases the name
	freed   time.Duration // since when the name has no holder
	token   uint64
	chosen  *modelProcess // by Prefer, last
	chosenAt,
	disturbed time.Duration // the last time a process stopped, ended or joined
	wrong string
	claims, preferences, passes,
	preferred int
}

type modelTicket struct {
	by       *modelProcess
	priority int // -1 is the front
	place    int64
}

type modelProcess struct {
	priority int
	place    int64 // as the process knows; 0: it has no ticket
	waiter   queue.Waiter
	next     time.Duration // of its next look
	asleep   time.Duration // until then it is stopped
	ended    bool
	waits    bool
	doing    func() // decided on by a look
	doAt     time.Duration
}

const (
	modelWaiters = 5
	lookEvery    = 60 * time.Millisecond
	actAfter     = 20 * time.Millisecond
	modelTick    = time.Millisecond
	modelEnd     = 40 * time.Second
)

// unclaimedFor bounds how long a name may stay free while a process waits that runs: all before it are passed over.
const unclaimedFor = (modelWaiters + 2) * (queue.PassAfter + 2*lookEvery + 2*actAfter)

func runQueueModel(variant string, seed uint64) *queueModel {
	m := &queueModel{Rand: rand.New(rand.NewPCG(seed, 1)), variant: variant}
	for range modelWaiters {
		m.all = append(m.all, &modelProcess{priority: m.IntN(3)})
	}
	for ; m.now < modelEnd && m.wrong == ""; m.now += modelTick {
		m.disturb()
		if m.holder != nil && m.now >= m.until {
			m.holder, m.freed = nil, m.now
		}
		for _, p := range m.all {
			m.step(p)
		}
		if m.holder == nil && m.running() > 0 && m.now-max(m.freed, m.disturbed) > unclaimedFor {
			m.fail("a free name was not claimed for %v", m.now-m.freed)
		}
	}
	return m
}

func (m *queueModel) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf("after %v: ", m.now) + fmt.Sprintf(format, args...)
	}
}

// running returns how many processes run and wait.
func (m *queueModel) running() (n int) {
	for _, p := range m.all {
		if p.waits && m.runs(p) {
			n++
		}
	}
	return n
}

func (m *queueModel) runs(p *modelProcess) bool { return !p.ended && m.now >= p.asleep }

// disturb is what happens to the processes.
func (m *queueModel) disturb() {
	p := m.all[m.IntN(len(m.all))]
	switch m.IntN(4000) {
	case 0, 1:
		p.asleep, m.disturbed = m.now+time.Duration(m.Int64N(int64(3*time.Second))), m.now
	case 2:
		p.ended, m.disturbed = true, m.now
	case 3, 4, 5, 6:
		if p.ended {
			*p = modelProcess{priority: m.IntN(3)} // another process; the ticket of the first stays
			for i := range m.tickets {
				if m.tickets[i].by == p {
					m.tickets[i].by = &modelProcess{ended: true}
				}
			}
		}
	case 7, 8, 9:
		m.prefer(p)
	}
}

// prefer is one step of the store: the ticket gets a place before all others.
func (m *queueModel) prefer(p *modelProcess) {
	i := slices.IndexFunc(m.tickets, func(t modelTicket) bool { return t.by == p })
	if i < 0 {
		return
	}
	m.front--
	m.tickets[i].place, m.tickets[i].priority = m.front, -1
	m.sort()
	m.chosen, m.chosenAt = p, m.now
	m.preferences++
}

func (m *queueModel) sort() {
	slices.SortFunc(m.tickets, func(a, b modelTicket) int {
		front := func(t modelTicket) int { return min(0, t.priority) }
		rank := cmp.Compare(b.priority, a.priority)
		if m.variant == "priority" {
			rank = 0
		}
		return cmp.Or(cmp.Compare(front(a), front(b)), rank, cmp.Compare(a.place, b.place))
	})
}

// step lets one process act on its last look, and look again.
func (m *queueModel) step(p *modelProcess) {
	if !m.runs(p) || p == m.holder {
		return
	}
	if p.doing != nil {
		if m.now >= p.doAt {
			do := p.doing
			p.doing = nil
			do()
		}
		return
	}
	if !p.waits {
		if m.IntN(300) == 0 {
			p.waits, m.disturbed = true, m.now
			m.join(p)
		}
		return
	}
	if m.now >= p.next {
		m.look(p)
	}
}

func (m *queueModel) join(p *modelProcess) {
	m.last++
	p.place, p.waiter = m.last, queue.Waiter{}
	m.tickets = append(m.tickets, modelTicket{p, p.priority, p.place})
	m.sort()
}

func (m *queueModel) look(p *modelProcess) {
	p.next = m.now + time.Duration(m.Int64N(int64(lookEvery)))
	v := queue.View{Free: m.holder == nil, Token: m.token, Write: [16]byte{byte(m.token)}}
	for i, t := range m.tickets {
		if t.by != p {
			continue
		}
		if t.place != p.place && m.variant != "adopt" {
			p.place = t.place // it was moved
		}
		if t.place == p.place {
			v.Place, v.Ahead, v.Head = m.key(t), i, m.key(m.tickets[0])
		}
	}
	at := int64(m.now)
	step := p.waiter.See(clock.Instant{Raw: at, Boot: at}, v)
	p.doAt = m.now + time.Duration(m.Int64N(int64(actAfter)))
	switch step.Act {
	case queue.Claim:
		p.doing = func() { m.claim(p) }
	case queue.Join:
		p.doing = func() {
			m.tickets = slices.DeleteFunc(m.tickets, func(t modelTicket) bool { return t.by == p })
			m.join(p)
		}
	case queue.Pass:
		if m.variant != "pass" {
			p.doing = func() { m.pass(step.Head) }
		}
	}
}

// key returns a number of a ticket that no other has, and never 0.
func (m *queueModel) key(t modelTicket) int64 { return t.place + 1<<40 }

func (m *queueModel) pass(head int64) {
	m.passes++
	m.tickets = slices.DeleteFunc(m.tickets, func(t modelTicket) bool { return m.key(t) == head })
}

// claim is the conditional write of the record.
func (m *queueModel) claim(p *modelProcess) {
	if m.holder != nil {
		return
	}
	m.token++
	m.check(p)
	if m.chosen == p {
		m.chosen, m.preferred = nil, m.preferred+1
	}
	m.holder, m.until = p, m.now+time.Duration(m.Int64N(int64(time.Second)))
	p.waits = false
	m.tickets = slices.DeleteFunc(m.tickets, func(t modelTicket) bool { return t.by == p })
	m.claims++
}

// check fails if a process claims the name before one that has run all the while and is before it: the waiter that was
// preferred last, or else one with a higher priority.
func (m *queueModel) check(by *modelProcess) {
	settled := m.freed - lookEvery - actAfter // changes since then may be too late for the look
	if c := m.chosen; c != nil && c != by && c.waits && m.runs(c) && m.chosenAt < settled && m.disturbed < m.chosenAt-2*time.Second {
		m.fail("the chosen waiter is overtaken")
	}
	if m.disturbed >= settled || m.front != 0 && m.chosenAt >= settled {
		return
	}
	for _, t := range m.tickets {
		if t.by != by && m.runs(t.by) && t.by.waits && t.by.priority > by.priority && !m.inFront(by) && m.freed > 0 && m.now-m.freed < queue.PassAfter {
			m.fail("a waiter of priority %d overtakes one of priority %d", by.priority, t.by.priority)
		}
	}
}

// inFront reports whether a process has been preferred.
func (m *queueModel) inFront(p *modelProcess) bool {
	return slices.ContainsFunc(m.tickets, func(t modelTicket) bool { return t.by == p && t.priority == -1 })
}

const queueModelSeeds = 150

// A name never stays free while a process waits that runs, the chosen waiter is the next if it runs, and priorities are kept.
func TestQueueModelKeepsItsPromises(t *testing.T) {
	var sum queueModel
	for seed := range uint64(queueModelSeeds) {
		m := runQueueModel("", seed)
		if m.wrong != "" {
			t.Fatalf("seed %d: %s", seed, m.wrong)
		}
		sum.claims, sum.preferences, sum.passes, sum.preferred = sum.claims+m.claims, sum.preferences+m.preferences, sum.passes+m.passes, sum.preferred+m.preferred
	}
	t.Logf("%d claims, %d preferences, of which %d led to a claim, %d tickets passed over", sum.claims, sum.preferences, sum.preferred, sum.passes)
	if min(sum.claims, sum.preferences, sum.passes, sum.preferred) < queueModelSeeds {
		t.Error("too little has happened to show anything")
	}
}

// Without one rule a promise breaks, and the model shows it.
func TestQueueModelBreaksWithoutEachRule(t *testing.T) {
	for _, variant := range []string{"pass", "adopt", "priority"} {
		t.Run(variant, func(t *testing.T) {
			for seed := range uint64(queueModelSeeds) {
				if m := runQueueModel(variant, seed); m.wrong != "" {
					t.Logf("seed %d: %s", seed, m.wrong)
					return
				}
			}
			t.Errorf("none of %d seeds has found it out", queueModelSeeds)
		})
	}
}
