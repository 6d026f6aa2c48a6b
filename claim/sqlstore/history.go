package sqlstore

import (
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/driver"
)

// A history is the past tenancies of a name as they stand in its row.
type history struct {
	op           claim.Op // of the row
	recent, past string   // what stands in the columns
	all          []driver.Tenancy
}

// maxRecent is how long the text in the column recent becomes. What is longer is all put into the column past, which
// is long and seldom written.
const maxRecent = 1000

// written returns the history of a row when a record has been written over old, and whether that leaves the column
// past as it is. Only what changes the owner adds to the past.
func (m *memory) written(r *claim.Record, old claim.Op, owner bool) (is history, same bool) {
	if is, ok := m.row(r.Name, old); ok && owner && is.add(r.Past) {
		is.op = r.Op
		return is, true
	}
	return history{op: r.Op, past: pastText(r.Past), all: asRead(r.Past)}, false
}

// add makes all the tenancies of the history, if it is they with one more, and that has room in recent.
func (h *history) add(all []driver.Tenancy) bool {
	if len(all) == 0 || len(all) != min(len(h.all)+1, claim.MaxPast) || !slices.EqualFunc(all[1:], h.all[:len(all)-1], isRead) {
		return false
	}
	text := pastText(all[:1])
	if h.recent != "" {
		if len(h.recent) < 2 || h.recent[:2] != "[{" { // somebody has written there
			return false
		}
		text = text[:len(text)-1] + "," + h.recent[1:]
	}
	if len(text) > maxRecent {
		return false
	}
	h.recent, h.all = text, asRead(all)
	return true
}

// maxMemory is of how many names the past is remembered.
const maxMemory = 256

// memory has the past of some names beside the texts it was read from or written as, which are what is compared: so
// a name that is claimed again and again is not read anew each time, and what is there already is not written again.
// It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	names map[string]history
}

// get returns what the texts of a history mean, if that is known.
func (m *memory) get(name string, h *history) ([]driver.Tenancy, bool) {
	if m == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := m.names[name]
	if !ok || is.recent != h.recent || is.past != h.past {
		return nil, false
	}
	is.op = h.op
	m.names[name] = is
	return slices.Clone(is.all), true
}

// row returns the history of a row with that op, if it is known.
func (m *memory) row(name string, op claim.Op) (history, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := m.names[name]
	return is, ok && is.op == op
}

// keep remembers the history of a name, and takes it over.
func (m *memory) keep(name string, h history) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		m.names = make(map[string]history)
	}
	if _, ok := m.names[name]; !ok && len(m.names) >= maxMemory {
		for other := range m.names { // any: it is read anew
			delete(m.names, other)
			break
		}
	}
	m.names[name] = h
}

// kept is told of a write that has changed nothing of the history but the op of its row.
func (m *memory) kept(name string, old, now claim.Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is, ok := m.names[name]; ok && is.op == old {
		is.op = now
		m.names[name] = is
	}
}

// isRead says whether a past tenancy is the one that was read, or would be: times may be in another zone.
func isRead(p, read driver.Tenancy) bool {
	if !p.From.Equal(read.From) || !p.To.Equal(read.To) || !p.Holder.Card.Started.Equal(read.Holder.Card.Started) {
		return false
	}
	p.From, p.To, p.Holder.Card.Started = read.From, read.To, read.Holder.Card.Started
	return p == read
}

// asRead returns past tenancies as they are when they have been read again.
func asRead(past []driver.Tenancy) []driver.Tenancy {
	past = slices.Clone(past)
	for i := range past {
		p := &past[i]
		for _, t := range []*time.Time{&p.From, &p.To, &p.Holder.Card.Started} {
			*t = t.Round(0).UTC()
		}
	}
	return past
}
