package sqlstore

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// A history is the past tenures of a name as they stand in its row.
type history struct {
	op           claim.Op // of the row
	recent, past string   // what stands in the columns
	read         bool     // what they mean is in all
	all          []backend.Tenure
}

// maxRecent is how long the text in the column recent becomes. What is longer is all put into the column past, which
// is long and seldom written.
const maxRecent = 1000

// written returns the history of a row when a record has been written over old, and whether that leaves the column
// past as it is. adds says that there is one tenure more, and nothing else has changed.
func (m *pastCache) historyOf(r *claim.Record, old claim.Op, adds bool) (is history, same bool) {
	if is, ok := m.rowHistory(r.Name, old); ok && adds && len(r.Past) > 0 && is.add(&r.Past[0]) {
		is.op = r.Op
		return is, true
	}
	return history{op: r.Op, past: pastText(r.Past), read: true, all: asRead(r.Past)}, false
}

// add adds a tenure to the text in recent, if there is room. What it means now is read when somebody asks.
func (h *history) add(p *backend.Tenure) bool {
	if h.recent != "" && !strings.HasPrefix(h.recent, "[{") { // somebody has written there
		return false
	}
	scratch := scratches.Get().(*[]byte)
	defer scratches.Put(scratch)
	text := appendTenure(append((*scratch)[:0], '['), p)
	if h.recent != "" {
		text = append(append(text, ','), h.recent[1:]...)
	} else {
		text = append(text, ']')
	}
	*scratch = text
	if len(text) > maxRecent {
		return false
	}
	h.recent, h.read, h.all = string(text), false, nil
	return true
}

// maxMemory is of how many names the past is remembered.
const maxMemory = 256

// memory has the past of some names beside the texts it was read from or written as, which are what is compared: so
// a name that is claimed again and again is not read again each time, and what is there already is not written again.
// It is safe for concurrent use.
type pastCache struct {
	mu    sync.Mutex
	names map[string]history
}

// get returns what the texts of a history mean, if that is known.
func (m *pastCache) meaning(name string, h *history) ([]backend.Tenure, bool) {
	if m == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := m.names[name]
	if !ok || !is.read || is.recent != h.recent || is.past != h.past {
		return nil, false
	}
	is.op = h.op
	m.names[name] = is
	return slices.Clone(is.all), true
}

// row returns the history of a row with that op, if it is known.
func (m *pastCache) rowHistory(name string, op claim.Op) (history, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := m.names[name]
	return is, ok && is.op == op
}

// keep remembers the history of a name, and takes it over.
func (m *pastCache) remember(name string, h history) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		m.names = make(map[string]history)
	}
	if _, ok := m.names[name]; !ok && len(m.names) >= maxMemory {
		for other := range m.names { // any: it is read again
			delete(m.names, other)
			break
		}
	}
	m.names[name] = h
}

// kept is told of a write that has changed nothing of the history but the op of its row.
func (m *pastCache) movedTo(name string, old, now claim.Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is, ok := m.names[name]; ok && is.op == old {
		is.op = now
		m.names[name] = is
	}
}

// asRead returns past tenures as they are when they have been read again.
func asRead(past []backend.Tenure) []backend.Tenure {
	past = slices.Clone(past)
	for i := range past {
		p := &past[i]
		for _, t := range []*time.Time{&p.From, &p.To, &p.Holder.Card.Started} {
			*t = t.Round(0).UTC()
		}
	}
	return past
}
