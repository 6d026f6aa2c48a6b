package sqlstore

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// history is the past tenures of a name as its row has them.
type history struct {
	op           claim.Op // of the row
	recent, past string   // the texts of the columns
	read         bool     // all has the tenures that the texts mean
	all          []backend.Tenure
}

// maxRecent is how long the text in the column recent may become, in bytes. A longer one is moved into the
// column past, which is long and seldom written.
const maxRecent = 1000

// historyOf returns the history of a row after a record was written over old. same reports whether that leaves
// the column past unchanged. adds says that the record has one more tenure, and no other change in its past.
func (m *pastCache) historyOf(r *claim.Record, old claim.Op, adds bool) (is history, same bool) {
	if is, ok := m.rowHistory(r.Name, old); ok && adds && len(r.Past) > 0 && is.add(&r.Past[0]) {
		is.op = r.Op
		return is, true
	}
	return history{op: r.Op, past: pastText(r.Past), read: true, all: asRead(r.Past)}, false
}

// add adds a tenure to the text in recent, and reports whether it has: it does not if there is no room, or if another
// program wrote the text. The text is parsed only when a caller needs the tenures.
func (h *history) add(p *backend.Tenure) bool {
	if h.recent != "" && !strings.HasPrefix(h.recent, "[{") { // the column has a text of another writer
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

// maxMemory is how many names' pasts are remembered.
const maxMemory = 256

// pastCache has the past of some names together with the texts from which it was read, or as which it was
// written. The texts are what is compared. So the past of a name that is claimed repeatedly is not parsed each
// time, and an unchanged column is not written again. It is safe for concurrent use.
type pastCache struct {
	mu    sync.Mutex
	names map[string]history
}

// meaning returns the tenures that the texts of a history mean, if they are known.
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

// rowHistory returns the history of a row with that op, if it is known.
func (m *pastCache) rowHistory(name string, op claim.Op) (history, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := m.names[name]
	return is, ok && is.op == op
}

// remember remembers the history of a name, and takes ownership of it.
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
		for other := range m.names { // any of them: it is read again
			delete(m.names, other)
			break
		}
	}
	m.names[name] = h
}

// movedTo notes a write that has changed only the op of the row, and nothing of the history.
func (m *pastCache) movedTo(name string, old, now claim.Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is, ok := m.names[name]; ok && is.op == old {
		is.op = now
		m.names[name] = is
	}
}

// asRead returns past tenures as a read returns them.
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
