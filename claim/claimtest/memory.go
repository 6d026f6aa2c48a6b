package claimtest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Memory is a database in memory, with any number of namespaces in it. It does one thing at a time, so it is
// linearizable, and keeps all that it has acknowledged. It is safe for concurrent use.
type Memory struct {
	gone   func(clock.Domain) bool
	start  time.Time
	mu     sync.Mutex
	moved  time.Duration
	spaces map[string]*space
}

// space is one namespace.
type space struct {
	judges       bool
	records      map[string]*kept
	observations map[observer]observation
	clocks       map[clock.Domain]clock.Instant
	floor        backend.Token
	listeners    map[*listener]struct{}
}

// kept is a record with its metadata.
type kept struct {
	record  claim.Record
	written time.Duration // by the store's clock
	damaged bool
}

type observer struct {
	name   string
	domain clock.Domain
}

type observation struct {
	op claim.Op
	at clock.Instant
}

// MemoryOption changes what [NewMemory] makes.
type MemoryOption func(*Memory)

// WithGone makes it a store of one machine's processes: gone reports which domains have ended.
func WithGone(gone func(clock.Domain) bool) MemoryOption {
	return func(m *Memory) { m.gone = gone }
}

// NewMemory returns an empty database. Its own clock runs with Go's, so in a bubble of testing/synctest it runs
// in the bubble's time.
func NewMemory(o ...MemoryOption) *Memory {
	m := &Memory{
		gone:   func(clock.Domain) bool { return false },
		start:  time.Now(),
		spaces: make(map[string]*space),
	}
	for _, option := range o {
		option(m)
	}
	return m
}

// Open returns a new client of the namespace without a name, as if of another process. It panics if that
// namespace is in store-clock mode.
func (m *Memory) Open() *Client {
	c, err := m.OpenNamespace("", false)
	if err != nil {
		panic(err)
	}
	return c
}

// OpenNamespace returns a new client of a namespace, in store-clock mode or not. The first call fixes the mode
// of the namespace; later calls with the other mode fail.
func (m *Memory) OpenNamespace(name string, judges bool) (*Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.spaces[name]
	if s == nil {
		s = &space{
			judges:       judges,
			records:      make(map[string]*kept),
			observations: make(map[observer]observation),
			clocks:       make(map[clock.Domain]clock.Instant),
			listeners:    make(map[*listener]struct{}),
		}
		m.spaces[name] = s
	}
	if s.judges != judges {
		return nil, fmt.Errorf("memory: namespace %q: %w: it was made for another mode: open it with store-clock mode %v", name, backend.ErrInvalid, s.judges)
	}
	return &Client{memory: m, space: s, closed: make(chan struct{})}, nil
}

// Advance moves the store's own clock, by which it judges in store-clock mode. A negative d moves it back, as a
// database must not.
func (m *Memory) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moved += d
}

// Damage makes a record of the namespace unreadable until it is removed.
func (m *Memory) Damage(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.spaces[namespace]; s != nil && s.records[name] != nil {
		s.records[name].damaged = true
	}
}

// Delete removes a record without any notification, as no program may.
func (m *Memory) Delete(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.spaces[namespace]; s != nil {
		s.deleteRecord(name)
	}
}

// now returns what the store's own clock shows. The caller holds the lock.
func (m *Memory) now() time.Duration { return time.Since(m.start) + m.moved }

// left returns how long a record still lasts by the store's own clock. The caller holds the lock.
func (m *Memory) left(k *kept) time.Duration { return k.record.TTL - max(0, m.now()-k.written) }

// found returns what a read of one name returns. The caller holds the lock.
func (m *Memory) found(s *space, name string) claim.Found {
	f := claim.Found{Record: claim.Record{Name: name}, Floor: s.floor}
	k := s.records[name]
	switch {
	case k == nil:
	case k.damaged:
		f.Err = fmt.Errorf("memory: the record of %q: %w: remove it by hand, and raise the floor above its token", name, backend.ErrCorrupt)
	default:
		f.Record = copied(k.record)
		if s.judges {
			f.Left = m.left(k)
		}
	}
	return f
}

// write does one conditional write. The caller holds the lock.
func (m *Memory) write(s *space, w claim.Swap) (bool, error) {
	if w.Record.Name == "" || !w.Record.Exists() || w.Record.Op == w.Old {
		return false, fmt.Errorf("memory: swap: %w: a write needs a name and an op of its own", backend.ErrInvalid)
	}
	if w.Ended && !s.judges {
		return false, fmt.Errorf("memory: swap: %w: only in store-clock mode does the store judge what has ended", backend.ErrInvalid)
	}
	old := s.records[w.Record.Name]
	if old == nil && w.Old != (claim.Op{}) || old != nil && old.record.Op != w.Old {
		return false, nil
	}
	if w.Ended && old != nil && m.left(old) >= 0 {
		return false, nil
	}
	if w.Extends && (old == nil || !extends(old.record, w.Record)) {
		return false, fmt.Errorf("memory: swap: %w: a write that only extends changes what no extension does", backend.ErrInvalid)
	}
	if w.Keeps && (old == nil || !keeps(old.record, w.Record)) {
		return false, fmt.Errorf("memory: swap: %w: a write that keeps pins, past and mark changes them, or is over a holder", backend.ErrInvalid)
	}
	if w.Adds && (old == nil || !adds(old.record, w.Record)) {
		return false, fmt.Errorf("memory: swap: %w: a write that adds one tenure to the past changes it in another way", backend.ErrInvalid)
	}
	if w.Above && s.floor >= w.Record.Token {
		return false, nil
	}
	s.records[w.Record.Name] = &kept{record: copied(w.Record), written: m.now()}
	if w.Owner {
		s.notifyListeners(w.Record.Name)
	}
	return true, nil
}

func (s *space) deleteRecord(name string) {
	delete(s.records, name)
	maps.DeleteFunc(s.observations, func(by observer, _ observation) bool { return by.name == name })
	s.notifyListeners(name)
}

// names returns the names for a List, in order.
func (s *space) names(prefix, after string, limit int) []string {
	var names []string
	for name := range s.records {
		if strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), max(limit, 0))]
}

// copied returns a record that shares no memory with r, with times as a store returns them.
func copied(r claim.Record) claim.Record {
	r.Pins, r.Past = slices.Clone(r.Pins), slices.Clone(r.Past)
	for _, t := range timesOf(&r) {
		if *t = t.Round(0); !t.IsZero() {
			*t = t.UTC()
		}
	}
	return r
}

// timesOf returns pointers to the wall-clock times of a record.
func timesOf(r *claim.Record) []*time.Time {
	times := []*time.Time{&r.Since, &r.Card.Started}
	for i := range r.Past {
		times = append(times, &r.Past[i].From, &r.Past[i].To, &r.Past[i].Holder.Card.Started)
	}
	return times
}

// begin takes the lock for one call, if the call is allowed.
func (c *Client) begin(ctx context.Context, what string) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("memory: %s: %w: %w", what, backend.ErrUnavailable, err)
	}
	c.memory.mu.Lock()
	select {
	case <-c.closed:
		c.memory.mu.Unlock()
		return nil, fmt.Errorf("memory: %s: %w", what, backend.ErrClosed)
	default:
		return c.memory.mu.Unlock, nil
	}
}

// extends reports whether a record differs from the old one only as an extension may.
func extends(old, r claim.Record) bool {
	old.Op, old.Domain, old.Written, old.Expiry, old.TTL = r.Op, r.Domain, r.Written, r.Expiry, r.TTL
	return reflect.DeepEqual(normalized(old), normalized(r))
}

// keeps reports whether a record has the pins, the past and the mark of the old one, which is vacant.
func keeps(old, r claim.Record) bool {
	old, r = normalized(old), normalized(r)
	return !old.Held() && reflect.DeepEqual(old.Pins, r.Pins) && reflect.DeepEqual(old.Past, r.Past) && old.Mark == r.Mark
}

// adds reports whether a record has the past of the old one with one tenure in front.
func adds(old, r claim.Record) bool {
	old, r = normalized(old), normalized(r)
	n := min(len(old.Past)+1, claim.MaxPast)
	return len(r.Past) == n && reflect.DeepEqual(r.Past[1:], append([]backend.Tenure{}, old.Past[:n-1]...))
}
