package claim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// tenure is what the model knows of the name's holder.
type tenure struct {
	by      *actor
	lease   *claim.Lease
	revoked bool
	lost    bool          // its holder has learned that it has expired
	heldOn  bool          // it was finished, and the name stays held
	until   clock.Instant // if heldOn: until when, on the clocks of by
}

// model is one name as seen by an observer of all clocks at once. It says what each call must answer, without
// knowing how a client finds out.
type model struct {
	*world
	t      *rapid.T
	actors []*actor
	now    *tenure // nil: vacant
	former []tenure
	pins   []string
	last   backend.Token
	mark   backend.Mark
	// Of each lease: what it was finished with, and whether a call to raise the mark, or to finish, has ended with an
	// unknown outcome.
	asked              map[*claim.Lease]backend.Finish
	doubted, finishing map[*claim.Lease]bool
	resumed            map[backend.Token]bool
}

// TestClientsMatchTheModel lets three machines, with one more process on one of them, do random calls on one
// name. The rates of their clocks are random within the drift bound. Requests and answers get lost or arrive
// late. Each call must answer what a model says that knows only the holder's own clocks.
func TestClientsMatchTheModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := &model{world: newWorld(t), t: r, asked: make(map[*claim.Lease]backend.Finish), doubted: make(map[*claim.Lease]bool), finishing: make(map[*claim.Lease]bool), resumed: make(map[backend.Token]bool)}
		bound := func(o *claim.Options) { o.Drift = 20_000 }
		for i := range 3 {
			at := time.Duration(rapid.IntRange(0, 1_000_000).Draw(r, "clock")) * time.Second
			a := m.actor(fmt.Sprint("machine", i), at, bound)
			a.ppm = int64(rapid.IntRange(-20_000, 20_000).Draw(r, "rate"))
			m.actors = append(m.actors, a)
		}
		m.actors = append(m.actors, m.actors[0].onSameMachine("process", bound))
		r.Repeat(map[string]func(*rapid.T){
			"claim":   m.claim,
			"extend":  m.extend,
			"release": m.release,
			"expire":  m.expire,
			"resume":  m.resume,
			"revoke":  m.revoke,
			"pin":     m.pin,
			"mark":    m.raise,
			"finish":  m.finish,
			"replace": m.replace,
			"pass":    m.time,
			"sleep":   m.sleep,
			"trouble": m.trouble,
			"arrive":  m.arrive,
			"collect": m.collect,
			"":        m.check,
		})
		m.live()
	})
}

func (m *model) someone(t *rapid.T) *actor {
	return m.actors[rapid.IntRange(0, len(m.actors)-1).Draw(t, "who")]
}

func (m *model) ttl(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(1, 60).Draw(t, "ttl")) * time.Second
}

// relied reports whether the holder still relies on its lease.
func (m *model) relied() bool {
	switch {
	case m.now == nil:
		return false
	case m.now.heldOn:
		return m.now.by.Now().Before(m.now.until)
	}
	return m.now.by.Now().Before(m.now.lease.Until())
}

// mayEnd fails if another client has ended the tenure when that was not allowed.
func (m *model) mayEnd(t *rapid.T, who string) {
	if m.now == nil {
		return
	}
	if m.relied() {
		t.Fatalf("%s has ended a lease on which %s relies for %v more (held on: %v)", who, m.now.by.name, m.now.by.remains(m.now.lease), m.now.heldOn)
	}
	if len(m.pins) > 0 {
		t.Fatalf("%s has ended a lease that is pinned", who)
	}
}

func (m *model) end() {
	if m.now != nil {
		m.former, m.now = append(m.former, *m.now), nil
	}
}

func (m *model) begin(t *rapid.T, a *actor, l *claim.Lease) {
	if l.Token() <= m.last {
		t.Fatalf("token %d after %d", l.Token(), m.last)
	}
	m.last = l.Token()
	m.now = &tenure{by: a, lease: l}
}

func (m *model) claim(t *rapid.T) {
	a := m.someone(t)
	l, err := a.Claim(m.Context(), a.request("job", m.ttl(t)))
	switch {
	case err == nil:
		m.mayEnd(t, a.name)
		m.end()
		m.begin(t, a, l)
	case !errors.Is(err, backend.ErrHeld):
		t.Fatal(err)
	case m.now == nil:
		t.Fatalf("%s is refused a name that is vacant: %v", a.name, err)
	}
}

// any returns the holder's lease or a former one.
func (m *model) any(t *rapid.T) tenure {
	all := slices.Clone(m.former)
	if m.now != nil {
		all = append(all, *m.now)
	}
	if len(all) == 0 {
		t.Skip("there was no lease yet")
	}
	return all[rapid.IntRange(max(0, len(all)-3), len(all)-1).Draw(t, "lease")]
}

func (m *model) extend(t *rapid.T) {
	x := m.any(t)
	until, all := x.lease.Until(), rapid.Bool().Draw(t, "all")
	var err error
	if all {
		if e := x.by.ExtendAll(m.Context(), []*claim.Lease{x.lease, x.lease}, func(_ int, e error) { err = e }); e != nil {
			t.Fatal(e)
		}
	} else {
		err = x.by.Extend(m.Context(), x.lease, m.ttl(t))
	}
	switch alive := m.now != nil && m.now.lease == x.lease && !m.now.revoked && !m.now.heldOn && !m.now.lost; {
	case alive && err != nil:
		t.Fatalf("%s cannot extend: %v", x.by.name, err)
	case !alive && !errors.Is(err, backend.ErrLost) && !(all && errors.Is(err, backend.ErrUnknownOutcome)):
		// Of two concurrent extensions, the write of one may still be under way when the other finds the lease
		// lost.
		t.Fatalf("%s has extended what it has lost: %v", x.by.name, err)
	case alive && !x.by.Now().Before(x.lease.Until()):
		t.Fatalf("extended until %v, and it is %v", x.lease.Until(), x.by.Now())
	}
	if now := x.lease.Until(); now.Raw < until.Raw || now.Boot < until.Boot {
		t.Fatalf("extended from %v to %v", until, now)
	}
}

func (m *model) release(t *rapid.T) {
	x := m.any(t)
	if err := x.by.Release(m.Context(), x.lease); err != nil {
		t.Fatal(err)
	}
	if m.now != nil && m.now.lease == x.lease && !m.now.heldOn {
		m.end()
	}
}

func (m *model) tick(t *rapid.T) backend.Tick {
	return backend.TickNumber(int64(rapid.IntRange(0, 20).Draw(t, "tick")))
}

// recorded reports whether a tick was recorded in the tenure with that token, and still is.
func (m *model) recorded(tick backend.Tick, token backend.Token) bool {
	done, _ := m.mark.Raised(tick, 0)
	return !tick.IsZero() && done == m.mark && m.mark.Token == token
}

// complete raises the mark in the model.
func (m *model) complete(t *rapid.T, tick backend.Tick, token backend.Token) {
	var err error
	if m.mark, err = m.mark.Raised(tick, token); err != nil {
		t.Fatal(err)
	}
}

func (m *model) raise(t *rapid.T) {
	x, tick := m.any(t), m.tick(t)
	trouble := len(x.by.wire.next) > 0 || m.doubted[x.lease]
	err := x.by.RaiseMark(m.Context(), x.lease, tick)
	m.doubted[x.lease] = errors.Is(err, backend.ErrUnknownOutcome) || m.doubted[x.lease] && err != nil
	if err == nil && m.recorded(tick, x.lease.Token()) {
		return
	}
	holds := m.now != nil && m.now.lease == x.lease && !m.now.heldOn && !m.expired(x)
	m.learn(t, x, holds, err)
	switch {
	case holds && err == nil:
		m.complete(t, tick, x.lease.Token())
	case holds && m.now.revoked && errors.Is(err, backend.ErrLost): // it has learned that already
	case !holds && trouble && errors.Is(err, backend.ErrUnknownOutcome): // nothing shows that the lost write did not happen
	case holds || !errors.Is(err, backend.ErrLost):
		t.Fatalf("holds %v, and raises the mark: %v", holds, err)
	}
}

// expired reports whether the holder of x, which may hold the name, has learned that its lease has expired, or would now.
func (m *model) expired(x tenure) bool {
	return m.now.lost || len(m.pins) == 0 && x.by.Now().After(x.lease.Until())
}

// learn takes in that the holder has learned that its lease has expired.
func (m *model) learn(t *rapid.T, x tenure, holds bool, err error) {
	if err == nil || !strings.Contains(err.Error(), "has expired") {
		return
	}
	if holds {
		t.Fatalf("%s lasts: %v", m.now.by.name, err)
	}
	if m.now != nil && m.now.lease == x.lease {
		m.now.lost = true
	}
}

func (m *model) finish(t *rapid.T) {
	x := m.any(t)
	f := backend.Finish{Hold: time.Duration(rapid.IntRange(0, 3).Draw(t, "hold")) * 10 * time.Second}
	if rapid.Bool().Draw(t, "records") {
		f.Tick = m.tick(t)
	}
	began, trouble := x.by.Now(), len(x.by.wire.next) > 0 || m.finishing[x.lease]
	err := x.by.Finish(m.Context(), x.lease, f)
	m.finishing[x.lease] = errors.Is(err, backend.ErrUnknownOutcome) || m.finishing[x.lease]
	_, again := m.asked[x.lease]
	holds := m.now != nil && m.now.lease == x.lease && !m.now.heldOn && !m.expired(x)
	m.learn(t, x, holds, err)
	switch {
	case again && err == nil:
	case !holds && trouble && errors.Is(err, backend.ErrUnknownOutcome): // nothing shows that the lost write did not happen
	case !holds && trouble && (m.resumed[x.lease.Token()] || m.recorded(f.Tick, x.lease.Token())):
		// What another handle, or an earlier call, has done in the tenure is taken for its own.
		if err == nil {
			m.asked[x.lease] = f
		}
	case again || holds != (err == nil) || err != nil && !errors.Is(err, backend.ErrLost):
		t.Fatalf("holds %v, again %v, and finishes: %v", holds, again, err)
	case err != nil:
	default:
		m.asked[x.lease] = f
		if !f.Tick.IsZero() {
			m.complete(t, f.Tick, x.lease.Token())
		}
		m.pins = nil
		if f.Hold == 0 || m.now.revoked {
			m.end()
			return
		}
		m.now.heldOn, m.now.until = true, began.Add(f.Hold)
	}
}

func (m *model) replace(t *rapid.T) {
	a, old, replacement := m.someone(t), m.mark, backend.Mark{}
	if rapid.Bool().Draw(t, "wrong") {
		old = backend.Mark{Tick: backend.TickNumber(99)}
	}
	if rapid.Bool().Draw(t, "sets") {
		replacement.Tick = m.tick(t)
	}
	done, err := a.ReplaceMark(m.Context(), "job", old, replacement)
	if err != nil || done != (old == m.mark) {
		t.Fatalf("replaced %v by %v: %v, %v", old, replacement, done, err)
	}
	if done {
		m.mark = replacement
	}
}

func (m *model) expire(t *rapid.T) {
	a := m.someone(t)
	err := a.Expire(m.Context(), "job")
	switch {
	case err == nil:
		if m.now == nil {
			t.Fatal("what was vacant has expired")
		}
		m.mayEnd(t, a.name)
		m.end()
	case errors.Is(err, backend.ErrInvalid) && m.now == nil:
	case errors.Is(err, backend.ErrPinned) && m.now != nil && len(m.pins) > 0:
	case errors.Is(err, backend.ErrHeld) && m.now != nil:
	default:
		t.Fatalf("holder %v, pins %q, and expiry: %v", m.now, m.pins, err)
	}
}

func (m *model) resume(t *rapid.T) {
	a := m.someone(t)
	token := m.last - backend.Token(min(uint64(m.last), uint64(rapid.IntRange(0, 1).Draw(t, "back"))))
	if token == 0 {
		t.Skip("no token")
	}
	l, err := a.Resume(m.Context(), "job", token, backend.Holder{ID: a.name}, a.id())
	if m.now == nil || m.now.lease.Token() != token || m.now.revoked || m.now.heldOn {
		m.is("resuming what is lost", err, backend.ErrLost)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	m.former = append(m.former, *m.now)
	m.now = &tenure{by: a, lease: l}
	m.resumed[token] = true
}

func (m *model) revoke(t *rapid.T) {
	a, now := m.someone(t), rapid.Bool().Draw(t, "now")
	err := a.Revoke(m.Context(), "job", 0, "x", now)
	switch {
	case m.now == nil:
		m.is("a name without a holder", err, backend.ErrLost)
	case len(m.pins) > 0:
		m.is("a pinned name", err, backend.ErrPinned)
	case err != nil:
		t.Fatal(err)
	case now:
		m.end()
	default:
		m.now.revoked = true
	}
}

func (m *model) pin(t *rapid.T) {
	a, why := m.someone(t), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "why")
	i, found := slices.BinarySearch(m.pins, why)
	var err error
	if found {
		err = a.Unpin(m.Context(), "job", why)
		m.pins = slices.Delete(m.pins, i, i+1)
	} else {
		err = a.Pin(m.Context(), "job", why)
		m.pins = slices.Insert(m.pins, i, why)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *model) collect(t *rapid.T) {
	a := m.someone(t)
	removed, err := a.Collect(m.Context(), claim.Collection{})
	if err != nil {
		t.Fatal(err)
	}
	if removed > 0 && m.now != nil {
		m.mayEnd(t, a.name)
		m.end()
	}
}

func (m *model) time(t *rapid.T) {
	m.pass(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond)
}

// sleep suspends one machine: one of its clocks does not count the time, and no process on it runs meanwhile.
func (m *model) sleep(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 40).Draw(t, "s")) * time.Second
	sleeper := m.someone(t)
	m.wall = m.wall.Add(d)
	for _, a := range m.world.actors {
		if a.clocks == sleeper.clocks {
			a.clocks.move(0, a.shows(d))
		} else {
			a.clocks.move(a.shows(d), a.shows(d))
		}
	}
}

// trouble makes an actor's next writes fail. There are fewer faults than clients have attempts.
func (m *model) trouble(t *rapid.T) {
	fates := rapid.SliceOfN(rapid.SampledFrom([]string{"lost", "unanswered", "parked", ""}), 1, 3).Draw(t, "fates")
	wire := m.someone(t).wire
	wire.next, wire.first = fates, slices.Clone(fates)
}

func (m *model) arrive(t *rapid.T) {
	m.someone(t).wire.arrive() // check fails if a late write has an effect that counts
}

// check compares the model with the record.
func (m *model) check(t *rapid.T) {
	f, err := m.memory.Open().Get(m.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	r := f.Record
	if r.Held() != (m.now != nil) || r.Held() && (r.Token != m.now.lease.Token() || r.Incarnation != m.now.lease.Incarnation()) {
		t.Fatalf("the record is %+v, the model %+v", r, m.now)
	}
	if r.Mark != m.mark {
		t.Fatalf("mark %q, and in the model %q", r.Mark.Text(), m.mark.Text())
	}
	if !slices.Equal(r.Pins, m.pins) {
		t.Fatalf("pins %q, and in the model %q", r.Pins, m.pins)
	}
	if max(r.Token, f.Floor) < m.last {
		t.Fatalf("token %d and floor %d, after %d", r.Token, f.Floor, m.last)
	}
}

// live checks that the name becomes free in the end.
func (m *model) live() {
	for _, why := range slices.Clone(m.pins) {
		m.is("unpin", m.actors[0].Unpin(m.Context(), "job", why), nil)
	}
	m.pins = nil
	for _, a := range m.actors {
		a.wire.next, a.wire.first = nil, nil
	}
	a := m.someone(m.t)
	if _, err := a.Claim(m.Context(), a.request("job", time.Second)); err == nil {
		return
	}
	// The last writer promised at most a minute, or kept to the longest rest of another promise.
	for range 10 {
		m.pass(time.Minute)
		if _, err := a.try("job", time.Second); err == nil {
			return
		}
	}
	m.t.Fatalf("%s does not get the name: %+v", a.name, a.state("job"))
}
