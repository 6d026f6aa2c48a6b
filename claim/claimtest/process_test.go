package claimtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// process is one life of a program that leases names, with a client of its own.
type process struct {
	*rand.Rand
	w       *world
	who     string
	machine *machine
	client  *claim.Client
	drift   clock.Drift // its drift bound: processes differ in it
	holder  backend.Holder
	held    map[string]*tenure
	open    map[string]claim.Request // claims whose outcome is unknown
	leases  map[string]*claim.Lease  // their leases
}

// runProcesses lets one process run after another, in the same boot or the next one.
func (w *world) runProcesses(r *rand.Rand) {
	time.Sleep(time.Duration(r.Int64N(int64(time.Second)))) // so that no two processes act at the same moment
	m := w.boot(r)
	for time.Since(w.began) < worldLength {
		w.live(r, m)
		w.count("crashes")
		time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
		if r.IntN(3) == 0 {
			m = w.boot(r)
			w.count("reboots")
		}
	}
}

// live runs one process. It ends with a crash: none of its leases is kept after that.
func (w *world) live(r *rand.Rand, m *machine) {
	number := r.Uint32()
	p := &process{
		Rand: r, w: w, machine: m, drift: worldDrift * clock.Drift(1+2*(number%2)), held: make(map[string]*tenure),
		open: make(map[string]claim.Request), leases: make(map[string]*claim.Lease),
		who: fmt.Sprintf("process %x of %s", number, m.domain),
		// Some processes have the same id, which does not make them one holder.
		holder: backend.Holder{ID: fmt.Sprintf("host-%d", r.IntN(3))},
	}
	var err error
	p.client, err = claim.NewClient(w.connect(r.Uint64()), claim.Options{
		Clock: m, Domain: m.domain, Drift: p.drift,
		Acknowledge: time.Duration(r.IntN(2)) * 3 * time.Second,
		Pause: func(ctx context.Context, _ time.Duration) error {
			time.Sleep(7 * time.Millisecond) // not at random: a run must be repeatable
			return ctx.Err()
		},
		// The wall clock only appears in times that are shown, so it may say anything.
		Wall: func() time.Time { return time.Unix(int64(time.Since(w.began))%7*1e8, 0) },
	})
	if err != nil {
		panic(err)
	}
	for end := time.Duration(r.Int64N(int64(worldLength / 3))); end > 0 && time.Since(w.began) < worldLength; {
		pause := time.Duration(r.Int64N(int64(2 * time.Second)))
		time.Sleep(pause)
		began := time.Now()
		p.act(worldNames[r.IntN(len(worldNames))])
		end -= pause + time.Since(began)
	}
}

// act makes one call, and waits for its end as long as it likes.
func (p *process) act(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+p.Int64N(int64(20*time.Second))))
	defer cancel()
	if p.held[name] != nil {
		p.keep(ctx, name)
		return
	}
	switch n := p.IntN(100); {
	case n < 50:
		p.claim(ctx, name)
	case n < 58:
		p.noteResult("expire", name, p.client.Expire(ctx, name))
	case n < 76:
		removed, err := p.client.Collect(ctx, claim.Collection{})
		p.noteResult(fmt.Sprintf("collect %d", removed), name, err)
	case n < 80:
		p.resume(ctx, name)
	case n < 84:
		_, err := p.client.List(ctx, "", "", 10)
		p.noteResult("list", name, err)
	case n < 88:
		p.noteResult("refresh", name, p.client.Refresh(ctx))
	case n < 90:
		p.noteResult("observe", name, p.client.KeepObservation(ctx, name))
	case n < 91:
		_, err := p.client.RaiseFloor(ctx, backend.Token(p.IntN(100)))
		p.noteResult("floor", name, err)
	case n < 94:
		p.w.count("pins")
		p.noteResult("pin", name, p.client.Pin(ctx, name, p.who))
	default:
		p.noteResult("unpin", name, p.client.Unpin(ctx, name, ""))
	}
}

// noteResult writes the diary, and checks that an error is of a known kind.
func (p *process) noteResult(what, name string, err error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.note("%s: %s: %s: %v", name, p.who, what, err)
	if errors.Is(err, backend.ErrUnknownOutcome) {
		p.w.counts["unknown"]++
	}
	for _, kind := range []error{nil, backend.ErrHeld, backend.ErrLost, backend.ErrContention, backend.ErrUnknownOutcome,
		backend.ErrPinned, backend.ErrInvalid, backend.ErrUnavailable, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return
		}
	}
	p.w.fail("%s: %s: %s: an error of no kind: %v", name, p.who, what, err)
}

// claim claims a name, or repeats a claim whose outcome is unknown.
func (p *process) claim(ctx context.Context, name string) {
	q, again := p.open[name]
	if again && p.IntN(3) == 0 {
		p.release(ctx, name, p.leases[name])
		return
	}
	if !again {
		q = claim.Request{Name: name, ID: newID(p.Rand), Holder: p.holder, TTL: p.ttl(), Waits: p.IntN(2) == 0}
	}
	before := p.machine.Now()
	l, err := p.client.Claim(ctx, q)
	p.noteResult("claim", name, err)
	delete(p.open, name)
	delete(p.leases, name)
	switch {
	case err == nil:
		p.got(name, l, before.Add(p.promised(q.TTL)))
	case errors.Is(err, backend.ErrUnknownOutcome):
		if l == nil {
			p.w.fail("a claim with unknown outcome has no lease")
			return
		}
		p.open[name], p.leases[name] = q, l
	case l != nil:
		p.w.fail("a claim that failed has a lease: %v", err)
	}
}

const leastTTL = 2 * time.Second

func (p *process) ttl() time.Duration {
	return leastTTL + time.Duration(p.Int64N(int64(20*time.Second)))
}

// newID returns a random id, the same in each run with one seed.
func newID(r *rand.Rand) (id backend.ID) {
	for i := range id {
		id[i] = byte(r.Uint32())
	}
	return id
}

// resume resumes a tenure that it sees, whether or not any process ever got its lease.
func (p *process) resume(ctx context.Context, name string) {
	s, err := p.client.Get(ctx, name)
	if p.noteResult("get", name, err); err != nil || !s.Record.Held() {
		return
	}
	before := p.machine.Now()
	l, err := p.client.Resume(ctx, name, s.Record.Token, p.holder, newID(p.Rand))
	p.noteResult("resume", name, err)
	if err == nil {
		p.w.count("resumptions")
		p.w.mu.Lock()
		p.w.resumed[s.Record.Token] = true
		p.w.mu.Unlock()
		p.got(name, l, before.Add(p.promised(leastTTL)))
	}
}

// promised returns for how much of its time the process may rely on a granted TTL.
func (p *process) promised(ttl time.Duration) time.Duration {
	if p.w.judges {
		return p.drift.RelyRemote(ttl)
	}
	return ttl
}

// got begins to rely on a lease. The lease lasts at least as long as requested, from the call on.
func (p *process) got(name string, l *claim.Lease, least clock.Instant) {
	t := &tenure{name: name, lease: l, machine: p.machine, who: p.who}
	p.lasts(t, least)
	p.held[name] = t
	p.w.acquired(t)
}

func (p *process) lasts(t *tenure, least clock.Instant) {
	if u := t.lease.Until(); u.Raw < least.Raw || u.Boot < least.Boot {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.w.fail("%s: %s was promised the time until %v, and the lease says %v", t.name, t.who, least, u)
	}
}

// keep makes a call for a name that the process holds.
func (p *process) keep(ctx context.Context, name string) {
	t := p.held[name]
	switch n := p.IntN(100); {
	case n < 60:
		p.extend(ctx, t)
	case n < 68:
		p.extendAll(ctx)
	case n < 76:
		delete(p.held, name)
		p.release(ctx, name, t.lease)
	case n < 81:
		p.raise(ctx, t)
	case n < 86:
		p.finish(ctx, t)
	case n < 88:
		err := p.client.Announce(ctx, t.lease, p.who)
		p.noteResult("announce", name, err)
		p.lost(t, err)
	case n < 91:
		p.w.count("pins")
		p.noteResult("pin", name, p.client.Pin(ctx, name, "busy"))
	case n < 96:
		p.noteResult("unpin", name, p.client.Unpin(ctx, name, ""))
	case n < 98:
		delete(p.held, name) // like a program that forgets its lease
	default:
		p.claim(ctx, name) // of its own name
	}
}

func (p *process) extend(ctx context.Context, t *tenure) {
	ttl := time.Duration(p.IntN(2)) * p.ttl()
	least := p.machine.Now().Add(p.promised(max(ttl, leastTTL)))
	err := p.client.Extend(ctx, t.lease, ttl)
	p.noteResult("extend", t.name, err)
	p.extended(t, least, err)
}

func (p *process) extendAll(ctx context.Context) {
	var all []*tenure
	var leases []*claim.Lease
	for _, name := range worldNames {
		if t := p.held[name]; t != nil {
			all, leases = append(all, t), append(leases, t.lease)
		}
	}
	least := p.machine.Now().Add(p.promised(leastTTL))
	told := make(map[int]error)
	_ = p.client.ExtendAll(ctx, leases, func(i int, err error) { told[i] = err })
	for i, t := range all { // not in the order of the reports, which may come at one moment
		err, ok := told[i]
		if !ok {
			p.w.fail("%s: %s got no result of an extension", t.name, p.who)
		}
		p.noteResult("extend together", t.name, err)
		p.extended(t, least, err)
	}
}

// extended takes in the result of an extension.
func (p *process) extended(t *tenure, least clock.Instant, err error) {
	p.lost(t, err)
	if err != nil {
		return
	}
	p.lasts(t, least)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.counts["extends"]++
	p.w.note("%s: %s may rely on token %d until %v", t.name, t.who, t.lease.Token(), t.lease.Until())
	p.w.stillThere(t)
}

// lost stops relying on a lease that was reported lost. The report must be true.
func (p *process) lost(t *tenure, err error) {
	if !errors.Is(err, backend.ErrLost) {
		return
	}
	delete(p.held, t.name)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	t.over = true
	p.w.counts["lost"]++
	if f, _ := p.w.direct.Get(context.Background(), t.name); f.Record.Held() && f.Record.Incarnation == t.lease.Incarnation() && f.Record.Token == t.lease.Token() {
		p.w.fail("%s: %s got that token %d is lost, which is false: %v", t.name, t.who, t.lease.Token(), err)
	}
}

// release releases a lease.
func (p *process) release(ctx context.Context, name string, l *claim.Lease) {
	p.w.mu.Lock()
	p.w.counts["releases"]++
	p.w.released[l.Incarnation()] = true
	for _, t := range p.w.relied[name] {
		t.over = t.over || t.lease == l
	}
	p.w.mu.Unlock()
	err := p.client.Release(ctx, l)
	p.noteResult("release", name, err)
	if errors.Is(err, backend.ErrUnknownOutcome) && p.IntN(2) == 0 {
		p.noteResult("release again", name, p.client.Release(ctx, l))
	}
	delete(p.open, name)
	delete(p.leases, name)
}

// tick returns a random tick for a name that gets marks, and none for another, whose record is then collected sometimes.
func (p *process) tick(name string) backend.Tick {
	if name == markedName {
		return backend.TickNumber(p.Int64N(1000))
	}
	return backend.Tick{}
}

// raise completes a tick, and goes on.
func (p *process) raise(ctx context.Context, t *tenure) {
	tick := p.tick(t.name)
	if tick.IsZero() {
		p.extend(ctx, t)
		return
	}
	err := p.client.RaiseMark(ctx, t.lease, tick)
	p.noteResult("raise the mark", t.name, err)
	if err != nil && !t.machine.Now().Before(t.lease.Until()) {
		delete(p.held, t.name) // it has expired, though no other may have noticed
		return
	}
	p.lost(t, err)
	p.recorded(t, tick, err)
}

// finish completes a tick, and releases the lease. Sometimes the name stays held for a while.
func (p *process) finish(ctx context.Context, t *tenure) {
	f := backend.Finish{Tick: p.tick(t.name), Hold: time.Duration(p.IntN(2)) * p.ttl()}
	p.w.mu.Lock()
	p.w.counts["finishes"]++
	p.w.heldOn[t.lease.Incarnation()] = heldOn{p.machine, p.machine.Now().Add(f.Hold)}
	p.w.released[t.lease.Incarnation()] = true
	t.over = true
	p.w.mu.Unlock()
	delete(p.held, t.name)
	err := p.client.Finish(ctx, t.lease, f)
	p.noteResult("finish", t.name, err)
	if errors.Is(err, backend.ErrUnknownOutcome) {
		err = p.client.Finish(ctx, t.lease, f)
		p.noteResult("finish again", t.name, err)
	}
	p.recorded(t, f.Tick, err)
}

// recorded takes in whether a tick was recorded. The report must be true.
func (p *process) recorded(t *tenure, tick backend.Tick, err error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	made := p.w.marks[t.name]
	if tick.IsZero() {
		return
	}
	switch wrote := slices.Contains(made, backend.Mark{Tick: tick, Token: t.lease.Token()}); {
	case err == nil && (len(made) == 0 || made[len(made)-1].Tick.Compare(tick) < 0):
		p.w.fail("%s: %s got that tick %v was recorded, and the marks were %v", t.name, t.who, tick, made)
	case errors.Is(err, backend.ErrLost) && wrote && !p.w.resumed[t.lease.Token()]:
		p.w.fail("%s: %s got that tick %v was not recorded, which is false: %v", t.name, t.who, tick, err)
	case err == nil:
		p.w.counts["recorded"]++
	}
}
