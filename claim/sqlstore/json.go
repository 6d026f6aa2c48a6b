package sqlstore

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/driver"
)

// What is written into columns as JSON is put together here, and not by package encoding/json, which takes longer
// for the past of a name than all the rest of a claim. It is the same text.

// cardText returns a card as JSON, or "" if it says nothing.
func cardText(c driver.Card) string {
	if !says(c) {
		return ""
	}
	return string(appendCard(nil, c))
}

func says(c driver.Card) bool {
	return c.Host != "" || c.PID != 0 || !c.Started.IsZero() || c.Text != ""
}

// pastText returns past tenancies as JSON, or "" if there are none.
func pastText(past []driver.Tenancy) string {
	if len(past) == 0 {
		return ""
	}
	scratch := scratches.Get().(*[]byte)
	text := (*scratch)[:0]
	for i := range past {
		text = append(text, "[,"[min(i, 1)])
		text = appendTenancy(text, &past[i])
	}
	text = append(text, ']')
	*scratch = text
	defer scratches.Put(scratch)
	return string(text)
}

// scratches are where texts are put together.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

func appendTenancy(to []byte, p *driver.Tenancy) []byte {
	to = append(to, `{"token":`...)
	to = strconv.AppendUint(to, uint64(p.Token), 10)
	to = appendField(to, "holder", p.Holder.ID)
	to = appendTime(to, "from", p.From)
	to = appendTime(to, "to", p.To)
	to = appendField(to, "why", string(p.Why))
	to = appendField(to, "note", p.Note)
	if says(p.Holder.Card) {
		to = append(to, `,"card":`...)
		to = appendCard(to, p.Holder.Card)
	}
	return append(to, '}')
}

func appendCard(to []byte, c driver.Card) []byte {
	to = append(to, '{')
	to = appendField(to, "host", c.Host)
	if c.PID != 0 {
		to = appendName(to, "pid")
		to = strconv.AppendInt(to, int64(c.PID), 10)
	}
	to = appendTime(to, "started", c.Started)
	to = appendField(to, "text", c.Text)
	return append(to, '}')
}

// appendName begins a field of an object.
func appendName(to []byte, name string) []byte {
	if to[len(to)-1] != '{' {
		to = append(to, ',')
	}
	to = append(to, '"')
	to = append(to, name...)
	return append(to, `":`...)
}

// appendField appends a text, if it says something.
func appendField(to []byte, name, text string) []byte {
	if text == "" {
		return to
	}
	to = appendName(to, name)
	for _, r := range text {
		if r < 0x20 || r == '"' || r == '\\' || r >= 0x7f {
			return appendOdd(to, text)
		}
	}
	to = append(to, '"')
	to = append(to, text...)
	return append(to, '"')
}

// appendOdd appends a text that may need escapes. HTML is of no account here.
func appendOdd(to []byte, text string) []byte {
	var quoted strings.Builder
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // never fails with a string
	return append(to, strings.TrimSuffix(quoted.String(), "\n")...)
}

// appendTime appends a time as it is shown to people, in UTC, if there is one.
func appendTime(to []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return to
	}
	to = append(appendName(to, name), '"')
	return append(t.UTC().AppendFormat(to, time.RFC3339Nano), '"')
}

// maxMemory is of how many names the past is remembered.
const maxMemory = 256

// memory has the past of some names beside the text it was read from or written as, which is what is compared: so
// a name that is claimed again and again is not read anew each time. It is safe for concurrent use.
type memory struct {
	mu    sync.Mutex
	pasts map[string]remembered
}

type remembered struct {
	text string
	past []driver.Tenancy
}

// get returns what a text means, if that is known.
func (m *memory) get(name, text string) ([]driver.Tenancy, bool) {
	if m == nil || text == "" {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := m.pasts[name]
	if !ok || is.text != text {
		return nil, false
	}
	return slices.Clone(is.past), true
}

// keep remembers what a text means, and takes past over.
func (m *memory) keep(name, text string, past []driver.Tenancy) {
	if m == nil || text == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pasts == nil {
		m.pasts = make(map[string]remembered)
	}
	if _, ok := m.pasts[name]; !ok && len(m.pasts) >= maxMemory {
		for other := range m.pasts { // any: it is read anew
			delete(m.pasts, other)
			break
		}
	}
	m.pasts[name] = remembered{text, past}
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
