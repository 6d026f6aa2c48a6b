package claimed

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// watchPage is how many records a watch reads at once.
	watchPage = 500
	// maxNoted is how many possibly changed names a watch remembers. With more it looks at all names.
	maxNoted = 256
	// watchShare limits the work of a watch. A watch rests for this many times as long as its last look at all
	// names took. So many names are looked at less often.
	watchShare = 10
)

// watcher is the state of one call of Watch.
type watcher struct {
	b      *Backend
	prefix string
	report func(backend.Event)
	seen   map[string]lastSeen // every name that the store has
	round  uint64              // counts looks at all names
	begun  bool                // all names were looked at once
	next   clock.Instant       // when to look at all names again
	ends   clock.Instant       // when the first of the leases seen expires

	wake chan struct{} // has room for one
	// The lock of the backend guards the fields below.
	noted map[string]struct{} // names that may have changed
	all   bool                // any name may have
}

// lastSeen is a name at the last look.
type lastSeen struct {
	round uint64
	held  bool
	token backend.Token
	by    backend.Holder
	ends  clock.Instant // if held: when the lease expires, unless it is renewed or pinned
}

// never is the end of no lease.
var never = clock.Instant{Raw: math.MaxInt64, Boot: math.MaxInt64}

// lastSeenOf returns what a watch remembers of a name.
func lastSeenOf(s claim.State) lastSeen {
	is := lastSeen{token: s.Record.Token}
	if s.Record.Held() && !s.Over {
		is.held, is.by, is.ends = true, backend.Holder{ID: s.Record.Holder, Card: s.Record.Card}, s.Latest
	}
	return is
}

// noteChange notes that a name, or any name if it is empty, may have changed. The caller holds the lock of the
// backend.
func (v *watcher) noteChange(name string) {
	switch {
	case name == "" || len(v.noted) >= maxNoted:
		v.all = true
		clear(v.noted)
	case !strings.HasPrefix(name, v.prefix):
		return
	case !v.all:
		v.noted[name] = struct{}{}
	}
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// Watch implements [backend.Watcher]. It looks at all names twice a second, or as [WithPoll] says. It does so
// less often if there are so many names that a look takes long. It also looks at names at which the store
// hints. If a tenure begins and ends between two looks, a Resync event stands for it.
func (b *Backend) Watch(ctx context.Context, prefix string, report func(backend.Event)) error {
	ctx, end, err := b.calls.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	v := &watcher{b: b, prefix: prefix, report: report, seen: make(map[string]lastSeen),
		wake: make(chan struct{}, 1), noted: make(map[string]struct{}), all: true}
	v.subscribe(true)
	defer v.subscribe(false)
	defer b.hints.want()()
	for {
		moved := b.clock.Moved()
		err := v.check(ctx)
		if err == nil {
			err = b.contextErr(ctx)
		}
		if err != nil {
			return b.callError(ctx, err)
		}
		if err := b.pause(ctx, v.untilNext(), moved, v.wake); err != nil {
			return err
		}
	}
}

// subscribe makes the backend notify v of hints, or stops that.
func (v *watcher) subscribe(on bool) {
	v.b.mu.Lock()
	defer v.b.mu.Unlock()
	if on {
		v.b.watchers[v] = struct{}{}
	} else {
		delete(v.b.watchers, v)
	}
}

// untilNext returns for how long there is no need to look.
func (v *watcher) untilNext() time.Duration {
	now := v.b.clock.Now()
	return max(0, min(now.Remaining(v.next), now.Until(v.ends)+1)) // strictly past the end
}

// check looks at names that may have changed, and reports changes.
func (v *watcher) check(ctx context.Context) error {
	began := v.b.clock.Now()
	v.b.mu.Lock()
	names, all := slices.Sorted(maps.Keys(v.noted)), v.all
	clear(v.noted)
	v.all = false
	v.b.mu.Unlock()
	if all || began.Remaining(v.next) <= 0 || began.After(v.ends) {
		return v.checkAll(ctx, began)
	}
	for _, name := range names {
		s, err := v.b.client.Get(ctx, name)
		if errors.Is(err, backend.ErrCorrupt) {
			continue
		}
		if err != nil {
			return err
		}
		v.publish(name, s)
	}
	v.findNextEnd()
	return nil
}

// checkAll reads all records. Each event shows the state when its page was read.
func (v *watcher) checkAll(ctx context.Context, began clock.Instant) error {
	v.round++
	for after := ""; ; {
		page, err := v.b.client.List(ctx, v.prefix, after, watchPage)
		if err != nil {
			return err
		}
		for _, s := range page {
			after = s.Record.Name
			if s.Err != nil {
				v.keepAsIs(after)
				continue
			}
			v.publish(after, s)
		}
		if len(page) < watchPage {
			break
		}
	}
	var gone []string
	for name, was := range v.seen {
		if was.round != v.round {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		v.publish(name, claim.State{Record: claim.Record{Name: name}, Over: true})
	}
	v.begun = true
	v.findNextEnd()
	now := v.b.clock.Now()
	v.next = now.Add(about(max(v.b.poll, watchShare*now.Elapsed(began))))
	return nil
}

// keepAsIs keeps the last state of a name that cannot be read.
func (v *watcher) keepAsIs(name string) {
	if was, ok := v.seen[name]; ok {
		was.round = v.round
		v.seen[name] = was
	}
}

// findNextEnd finds when the next lease expires. A lease whose end has passed, and which has not ended for
// another reason, is looked at with all others.
func (v *watcher) findNextEnd() {
	now := v.b.clock.Now()
	v.ends = never
	for _, is := range v.seen {
		if is.held && !now.After(is.ends) {
			v.ends = clock.Instant{Raw: min(v.ends.Raw, is.ends.Raw), Boot: min(v.ends.Boot, is.ends.Boot)}
		}
	}
}

// publish reports the change of a name since the last look.
func (v *watcher) publish(name string, s claim.State) {
	was, known := v.seen[name]
	is := lastSeenOf(s)
	is.round = v.round
	if s.Record.Exists() {
		v.seen[name] = is
	} else {
		delete(v.seen, name)
	}
	e := backend.Event{Info: infoOf(s)}
	switch {
	case !v.begun && !known:
		e.Kind = backend.Resync
		if !is.held {
			return
		}
	case is.held && was.token != is.token:
		e.Kind = backend.Acquired
		if was.held {
			e.Why = whyEnded(s, was.token)
		}
	case was.held && !is.held:
		e.Kind, e.Why = backend.Vacated, whyEnded(s, was.token)
	case is.held && !was.held, !is.held && was.token != is.token:
		// It had expired, and its holder has renewed it all the same; or another holder had it meanwhile.
		e.Kind = backend.Resync
	case is.held && !same(was.by, is.by):
		e.Kind = backend.Announced
	default:
		return
	}
	v.report(e)
}

// same reports whether two holders do not differ in anything that a watch reports.
func same(a, b backend.Holder) bool {
	return a.ID == b.ID && a.Card.Host == b.Card.Host && a.Card.PID == b.Card.PID &&
		a.Card.Text == b.Card.Text && a.Card.Started.Equal(b.Card.Started)
}

// whyEnded returns why the tenure with that token ended, if the record still says so.
func whyEnded(s claim.State, t backend.Token) backend.Reason {
	switch {
	case !s.Record.Exists():
		return backend.Deleted
	case s.Record.Token == t:
		why, _ := s.Record.EndsAs()
		return why
	}
	for _, past := range s.Record.Past {
		if past.Token == t {
			return past.Why
		}
	}
	return ""
}
