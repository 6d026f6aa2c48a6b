package sqlstore

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// The JSON of columns is built here, and not by package encoding/json, which takes longer for the past of a
// name than all the rest of a claim. The text is the same.

// cardText returns a card as JSON, or "" if it is empty.
func cardText(c backend.Card) string {
	if !says(c) {
		return ""
	}
	if last := lastCard.Load(); last != nil && last.card == c {
		return last.text
	}
	text := string(appendCard(nil, c))
	lastCard.Store(&cardCache{c, text})
	return text
}

// cardCache has the last card that was encoded: a program nearly always has the same one.
type cardCache struct {
	card backend.Card
	text string
}

var lastCard atomic.Pointer[cardCache]

func says(c backend.Card) bool {
	return c.Host != "" || c.PID != 0 || !c.Started.IsZero() || c.Text != ""
}

// pastText returns past tenures as JSON, or "" if there are none.
func pastText(past []backend.Tenure) string {
	if len(past) == 0 {
		return ""
	}
	scratch := scratches.Get().(*[]byte)
	text := (*scratch)[:0]
	for i := range past {
		text = append(text, "[,"[min(i, 1)])
		text = appendTenure(text, &past[i])
	}
	text = append(text, ']')
	*scratch = text
	defer scratches.Put(scratch)
	return string(text)
}

// scratches are buffers in which texts are built.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

func appendTenure(to []byte, p *backend.Tenure) []byte {
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

func appendCard(to []byte, c backend.Card) []byte {
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

// appendField appends a text, unless it is empty.
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

// appendOdd appends a text that may need escapes. HTML needs none here.
func appendOdd(to []byte, text string) []byte {
	var quoted strings.Builder
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // never fails with a string
	return append(to, strings.TrimSuffix(quoted.String(), "\n")...)
}

// appendTime appends a time in UTC, for people to read, unless it is zero.
func appendTime(to []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return to
	}
	to = append(appendName(to, name), '"')
	return append(t.UTC().AppendFormat(to, time.RFC3339Nano), '"')
}
