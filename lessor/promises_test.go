package lessor

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/clock"
)

// drift is the bound that one of the two clocks of every simulated machine keeps, in parts per million.
const drift clock.Drift = 100_000

// world is a cluster in real time. It knows what no member knows: the real time, and which renewals were
// acknowledged.
type world struct {
	*cluster
	now     time.Duration // real time
	rates   map[*member]rates
	deposed *member                  // deposed, and does not know it
	results []string                 // of each entry, the same on all members
	acked   map[Ref]time.Duration    // real time of the last acknowledged renewal
	waiting map[Ref]time.Duration    // real time of the last renewal that waits for a clear
	decided map[Expiry]time.Duration // real time of the first decision
}

type rates struct {
	raw, boot int64 // parts per million
	offset    clock.Instant
}

func newWorld(t *rapid.T) *world {
	w := &world{
		cluster: newCluster(Config{}, true, "A", "B", "C"), rates: map[*member]rates{},
		acked: map[Ref]time.Duration{}, waiting: map[Ref]time.Duration{}, decided: map[Expiry]time.Duration{},
	}
	for _, m := range w.members {
		m.lags = true // a member applies entries only when the test says so
		r := rates{
			raw:  rapid.Int64Range(1_000_000-int64(drift), 1_000_000+int64(drift)).Draw(t, "true rate"),
			boot: rapid.SampledFrom([]int64{0, 500_000, 1_000_000, 2_000_000}).Draw(t, "other rate"),
		}
		if rapid.Bool().Draw(t, "boot is true") {
			r.raw, r.boot = r.boot, r.raw
		}
		start := clock.Instant{Raw: rapid.Int64Range(0, 1e12).Draw(t, "raw"), Boot: rapid.Int64Range(0, 1e12).Draw(t, "boot")}
		m.clocks = clock.NewManual(start)
		r.offset = start
		w.rates[m] = r
	}
	w.elect(t)
	return w
}

func (w *world) advance(d time.Duration) {
	w.now += d
	for _, m := range w.members {
		r, now := w.rates[m], m.clocks.Now()
		raw := r.offset.Raw + int64(w.now)/1_000_000*r.raw
		boot := r.offset.Boot + int64(w.now)/1_000_000*r.boot
		m.clocks.AdvanceBy(time.Duration(raw-now.Raw), time.Duration(boot-now.Boot))
	}
}

// apply makes m apply one entry, and compares the result with that of the other members.
func (w *world) apply(t *rapid.T, m *member) {
	index := m.applied
	e := w.log[index]
	if _, ok := e.command.(leadershipCommand); ok && m.lessor.Primary() {
		m.lessor.Demote()
		if w.deposed == m {
			w.deposed = nil
		}
	}
	result := m.applyNext()
	if index < len(w.results) {
		if w.results[index] != result {
			t.Fatalf("entry %d gave %q, but on %s it gave %q", index+1, w.results[index], m.name, result)
		}
		w.afterApply(e, m)
		return
	}
	w.results = append(w.results, result)
	switch command := e.command.(type) {
	case grantCommand:
		if lease, ok := m.lessor.Lookup(command.id); ok && lease.Generation == At(uint64(index+1), 0) {
			w.acked[lease.Ref()] = w.now
		}
	case Expiry:
		if result == describe(command)+outcome(true) {
			w.checkExpiry(t, command, index)
		}
	}
	w.afterApply(e, m)
}

// afterApply acknowledges the renewals that waited for a clear.
func (w *world) afterApply(e entry, m *member) {
	c, ok := e.command.(Cleared)
	if !ok || m != w.leader || !m.lessor.Primary() || e.term != w.term {
		return
	}
	if heard, ok := w.waiting[c.Ref]; ok && w.results[m.applied-1] == describe(c)+outcome(true) {
		w.acked[c.Ref] = max(w.acked[c.Ref], heard)
		delete(w.waiting, c.Ref)
	}
}

// checkExpiry checks promise P3: no member decides an end that undercuts an acknowledged renewal. Rules C1
// and C2 meet here, because the holder stops after TTL/(1+ρ) of real time at the latest.
func (w *world) checkExpiry(t *rapid.T, e Expiry, index int) {
	for _, entry := range w.log[:index] {
		if g, ok := entry.command.(grantCommand); ok && g.id == e.ID {
			relied := time.Duration(float64(g.ttl) / (1 + float64(drift)/1e6))
			if w.log[e.Generation.Index()-1].command != entry.command {
				continue
			}
			if since := w.decided[e] - w.acked[e.Ref]; since < relied-time.Millisecond {
				t.Fatalf("%s was decided %v after an acknowledged renewal of %v", describe(e), since, g.ttl)
			}
		}
	}
}

// elect makes some member the leader of a new term. The new leader has everything that all members had in the
// log, and as much of the old leader's proposals as reached it. The old leader does not know yet that it is
// deposed.
func (w *world) elect(t *rapid.T) {
	reached := rapid.IntRange(0, len(w.outbox)).Draw(t, "reached the next leader")
	for _, command := range w.outbox[:reached] {
		w.append(w.term, command)
	}
	if w.deposed != nil {
		w.deposed.lessor.Demote()
	}
	w.deposed, w.leader, w.outbox = w.leader, nil, nil
	clear(w.waiting)
	m := w.members[rapid.IntRange(0, len(w.members)-1).Draw(t, "leader")]
	if w.deposed == m {
		m.lessor.Demote()
		w.deposed = nil
	}
	w.term++
	w.append(w.term, leadershipCommand{})
	for m.applied < len(w.log) {
		w.apply(t, m)
	}
	m.lessor.Promote(0, m.clocks.Now(), w.term)
	w.leader = m
}

func (w *world) commit(t *rapid.T, n int) {
	for _, command := range w.outbox[:n] {
		w.append(w.term, command)
		w.apply(t, w.leader)
	}
	w.outbox = slices.Delete(w.outbox, 0, n)
}

func (w *world) decide() {
	for _, command := range w.due() {
		if e, ok := command.(Expiry); ok {
			if _, again := w.decided[e]; !again {
				w.decided[e] = w.now
			}
		}
	}
	if w.deposed != nil {
		w.deposed.lessor.Due(w.deposed.clocks.Now(), At(uint64(w.deposed.applied), 0))
	}
}

func (w *world) renew(t *rapid.T) {
	id := ID(rapid.IntRange(1, 4).Draw(t, "id"))
	switch _, err := w.leader.lessor.Renew(id, w.leader.clocks.Now()); err {
	case nil:
		lease, _ := w.leader.lessor.Lookup(id)
		w.acked[lease.Ref()] = w.now
	case ErrClearing:
		lease, _ := w.leader.lessor.Lookup(id)
		w.waiting[lease.Ref()] = w.now
	}
	if w.deposed != nil {
		_, _ = w.deposed.lessor.Renew(id, w.deposed.clocks.Now()) // it has no authority to acknowledge the renewal
	}
}

func (w *world) drop(t *rapid.T) {
	if len(w.outbox) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.outbox)-1).Draw(t, "which")
	w.cluster.drop(w.outbox[i])
	if rapid.Bool().Draw(t, "and it is") {
		w.outbox = slices.Delete(w.outbox, i, i+1)
	}
}

func (w *world) restart(t *rapid.T) {
	m := w.members[rapid.IntRange(0, len(w.members)-1).Draw(t, "member")]
	if m == w.leader || m == w.deposed {
		return
	}
	var records []Record
	for _, lease := range m.lessor.Leases() {
		record, _ := m.lessor.Record(lease.ID)
		records = append(records, record)
	}
	m.lessor.Recover(slices.Values(records), m.lessor.Leaderships())
}

// Random histories of three members undercut no acknowledged renewal. The members have bad clocks, apply late
// and restart. Proposals are lost, repeated or of unknown fate. Deposed leaders believe that they still lead.
func TestAcknowledgedRenewalIsNeverUndercut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		pass := func(t *rapid.T) {
			w.advance(time.Duration(rapid.SampledFrom([]int{1, 100, 900, 2000, 5000}).Draw(t, "ms")) * time.Millisecond)
		}
		commit := func(t *rapid.T) { w.commit(t, rapid.IntRange(0, len(w.outbox)).Draw(t, "n")) }
		due := func(*rapid.T) { w.decide() }
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, m := range w.members {
					if err := checkInvariants(m.lessor); err != nil {
						t.Fatalf("%s: %v", m.name, err)
					}
				}
			},
			"pass": pass, "pass more": pass, "due": due, "due again": due, "commit": commit, "commit more": commit,
			"renew": w.renew, "renew again": w.renew, "renew once more": w.renew,
			"grant": func(t *rapid.T) {
				ttl := time.Duration(rapid.SampledFrom([]int{1, 3, 10}).Draw(t, "ttl")) * time.Second
				w.outbox = append(w.outbox, grantCommand{ID(rapid.IntRange(1, 4).Draw(t, "id")), ttl})
			},
			"revoke": func(t *rapid.T) {
				w.outbox = append(w.outbox, revokeCommand{ID(rapid.IntRange(1, 4).Draw(t, "id"))})
			},
			"drop":    w.drop,
			"elect":   w.elect,
			"restart": w.restart,
			"apply": func(t *rapid.T) {
				m := w.members[rapid.IntRange(0, len(w.members)-1).Draw(t, "member")]
				for range rapid.IntRange(0, len(w.log)-m.applied).Draw(t, "entries") {
					w.apply(t, m)
				}
			},
		})
		w.finish(t)
	})
}

// finish lets all leases end, and fails if a lease is left.
func (w *world) finish(t *rapid.T) {
	m := w.leader
	for range 100 {
		w.commit(t, len(w.outbox))
		if m.lessor.Len() == 0 {
			return
		}
		m.clocks.Advance(time.Minute)
		w.now += time.Hour
		for range 3 {
			w.decide()
		}
		// A leader whose proposals are lost without a report steps down, so no lease waits for ever.
		w.elect(t)
		m = w.leader
	}
	t.Fatalf("leases are left over: %v", m.lessor.Leases())
}

// A silent holder keeps its lease beyond its TTL for no more than the silence threshold and the first
// leaderless time, however many leaders follow. If there is no leader at that moment, the lease ends under
// the next one.
func TestOverstayIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const step = 10 * time.Millisecond
		ttl := time.Duration(rapid.IntRange(2, 60).Draw(t, "ttl")) * time.Second
		c := newCluster(Config{}, true, "A", "B", "C")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		c.lead(c.members[0], 0)
		c.append(c.term, grantCommand{1, ttl})
		c.applyAll()
		lifetime := rapid.IntRange(5, 3000).Draw(t, "mean steps a leader lives")
		var now, leaderless, first, heard time.Duration
		renewUntil := time.Duration(rapid.IntRange(0, 60).Draw(t, "renew until")) * time.Second
		for c.members[0].lessor.Len() > 0 {
			now += step
			for _, m := range c.members {
				m.clocks.Advance(step)
			}
			switch {
			case c.leader == nil:
				leaderless += step
				if random.IntN(200) == 0 {
					if first == 0 {
						first = leaderless
					}
					c.lead(c.members[random.IntN(3)], 0)
				}
				continue
			case random.IntN(lifetime) == 0:
				c.leader.lessor.Demote()
				c.leader, c.outbox, leaderless = nil, nil, 0
				continue
			case now <= renewUntil && random.IntN(int(ttl/step)/5+1) == 0:
				if _, err := c.leader.lessor.Renew(1, c.leader.clocks.Now()); err == nil || err == ErrClearing {
					heard, first = now, 0
				}
			}
			c.due()
			c.commit()
			bound := heard + ttl + SilenceThreshold(ttl) + first + 2*step
			if c.leader.lessor.Len() > 0 && now > bound {
				t.Fatalf("silent since %v, now %v: %v beyond its TTL of %v; first leaderless time %v",
					heard, now, now-heard-ttl, ttl, first)
			}
		}
		if now < heard+ttl {
			t.Fatalf("the lease ended at %v; last renewal at %v, TTL %v", now, heard, ttl)
		}
	})
}

// The test states the formula of SilenceThreshold in exact fractions of the TTL.
func TestSilenceThresholdFollowsItsFormula(t *testing.T) {
	for _, test := range []struct{ ttl, want time.Duration }{
		{1 * time.Second, 800 * time.Millisecond},
		{2 * time.Second, 1600 * time.Millisecond},
		{3 * time.Second, 2 * time.Second},
		{6 * time.Second, 3300 * time.Millisecond},
		{60 * time.Second, 33 * time.Second},
		{MaxTTL, MaxTTL / 100 * 55},
	} {
		if got := SilenceThreshold(test.ttl); got != test.want {
			t.Errorf("SilenceThreshold(%v) = %v, want %v", test.ttl, got, test.want)
		}
	}
	for ttl := time.Duration(1); ttl < MaxTTL/3; ttl = ttl*3 + 1 {
		if got := SilenceThreshold(ttl); got < 0 || got > ttl/5*4 {
			t.Errorf("SilenceThreshold(%v) = %v", ttl, got)
		}
	}
}
