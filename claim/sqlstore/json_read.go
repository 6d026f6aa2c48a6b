package sqlstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// jsonReader reads the JSON that this package writes, of plain texts. A process that waits reads the past of a name before
// it claims it, and package encoding/json takes many times longer. All other JSON is left to that package: a text with
// an escape or beyond ASCII, fields in another order, and what another program wrote.
type jsonReader struct {
	rest   string
	failed bool // the text is not such JSON
}

// readTenures returns the tenures of a text that is not empty. It returns false if another reader has to read the text.
func readTenures(text string) (all []backend.Tenure, ok bool) {
	r := &jsonReader{rest: text}
	r.expect("[")
	for !r.failed {
		all = append(all, r.tenure())
		if !r.skip(",") {
			break
		}
	}
	r.expect("]")
	return all, !r.failed && r.rest == ""
}

// readCard returns the card of a text that is not empty, as readTenures does.
func readCard(text string) (c backend.Card, ok bool) {
	r := &jsonReader{rest: text}
	c = r.card()
	return c, !r.failed && r.rest == ""
}

// tenure reads what appendTenure writes.
func (r *jsonReader) tenure() (p backend.Tenure) {
	r.expect(`{"token":`)
	p.Token = backend.Token(r.number(63))
	if r.skip(`,"holder":`) {
		p.Holder.ID = r.text()
	}
	if r.skip(`,"from":`) {
		p.From = r.time()
	}
	if r.skip(`,"to":`) {
		p.To = r.time()
	}
	if r.skip(`,"why":`) {
		p.Why = backend.Reason(r.text())
	}
	if r.skip(`,"note":`) {
		p.Note = r.text()
	}
	if r.skip(`,"card":`) {
		p.Holder.Card = r.card()
	}
	r.expect("}")
	return p
}

// card reads what appendCard writes.
func (r *jsonReader) card() (c backend.Card) {
	r.expect("{")
	comma := "" // before the next field
	next := func(name string) bool {
		if !strings.HasPrefix(r.rest, comma) || !strings.HasPrefix(r.rest[len(comma):], name) {
			return false
		}
		r.rest, comma = r.rest[len(comma)+len(name):], ","
		return true
	}
	if next(`"host":`) {
		c.Host = r.text()
	}
	if next(`"pid":`) {
		c.PID = int(r.number(strconv.IntSize - 1))
	}
	if next(`"started":`) {
		c.Started = r.time()
	}
	if next(`"text":`) {
		c.Text = r.text()
	}
	r.expect("}")
	return c
}

// skip reads a literal if the rest begins with it.
func (r *jsonReader) skip(literal string) (ok bool) {
	r.rest, ok = strings.CutPrefix(r.rest, literal)
	return ok
}

func (r *jsonReader) expect(literal string) {
	if !r.skip(literal) {
		r.failed = true
	}
}

// number reads a number that is not negative and fits into that many bits.
func (r *jsonReader) number(bits int) uint64 {
	end := 0
	for end < len(r.rest) && '0' <= r.rest[end] && r.rest[end] <= '9' {
		end++
	}
	n, err := strconv.ParseUint(r.rest[:end], 10, bits)
	if err != nil || r.rest[0] == '0' && end > 1 {
		r.failed = true
	}
	r.rest = r.rest[end:]
	return n
}

// text reads a text without escapes.
func (r *jsonReader) text() string {
	r.expect(`"`)
	end := 0
	for end < len(r.rest) && ' ' <= r.rest[end] && r.rest[end] < 0x7f && r.rest[end] != '"' && r.rest[end] != '\\' {
		end++
	}
	text := r.rest[:end]
	r.rest = r.rest[end:]
	r.expect(`"`)
	return text
}

func (r *jsonReader) time() (t time.Time) {
	if t.UnmarshalText([]byte(r.text())) != nil {
		r.failed = true
	}
	return t.UTC()
}
