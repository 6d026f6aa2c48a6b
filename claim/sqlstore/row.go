package sqlstore

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// card and tenure are the JSON of columns. Their field names are for people, and are part of the schema.

type card struct {
	Host    string     `json:"host,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Started *time.Time `json:"started,omitempty"`
	Text    string     `json:"text,omitempty"`
}

type tenure struct {
	Token  backend.Token `json:"token"`
	Holder string        `json:"holder,omitempty"`
	From   *time.Time    `json:"from,omitempty"`
	To     *time.Time    `json:"to,omitempty"`
	Why    string        `json:"why,omitempty"`
	Note   string        `json:"note,omitempty"`
	Card   card          `json:"card,omitzero"`
}

func (c card) card() backend.Card {
	return backend.Card{Host: c.Host, PID: c.PID, Started: fromTime(c.Started), Text: c.Text}
}

func fromTime(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// row appends the values of columns for a record, or of taken if the swap keeps pins, past and mark. marks says that
// there is a column of marks. The caller adds the values of the past.
func row(to []any, r *claim.Record, keeps, marks bool) ([]any, error) {
	if err := fits(r, keeps); err != nil {
		return nil, err
	}
	since := ""
	if !r.Since.IsZero() {
		since = r.Since.UTC().Format(time.RFC3339Nano)
	}
	to = append(to, r.Holder, int64(r.Token), r.Op.String(), hex.EncodeToString(r.Incarnation[:]), string(r.Domain), r.Written.Raw, r.Written.Boot,
		r.Expiry.Raw, r.Expiry.Boot, int64(r.TTL), cardText(r.Card), r.Revoked, since)
	if keeps {
		return to, nil
	}
	pins := ""
	if len(r.Pins) > 0 {
		text, err := json.Marshal(r.Pins)
		if err != nil {
			return nil, fmt.Errorf("%w: the record of %s cannot be kept: %v", backend.ErrInvalid, r.Name, err)
		}
		pins = string(text)
	}
	to = append(to, pins)
	if marks {
		to = append(to, r.Mark.Text())
	}
	return to, nil
}

// extension appends the values of extended for a record.
func extension(to []any, r *claim.Record) ([]any, error) {
	if err := errors.Join(textFits(r.Name), textFits(string(r.Domain))); err != nil {
		return nil, err
	}
	return append(to, r.Op.String(), string(r.Domain), r.Written.Raw, r.Written.Boot, r.Expiry.Raw, r.Expiry.Boot, int64(r.TTL)), nil
}

// fits returns an error if a column cannot keep a field of the record unchanged. It does not check the past.
// What a swap keeps fits already.
func fits(r *claim.Record, keeps bool) error {
	if r.Token > math.MaxInt64 {
		return fmt.Errorf("%w: token %d is above %d, the largest number in a database", backend.ErrInvalid, r.Token, int64(math.MaxInt64))
	}
	for _, text := range [...]string{r.Name, r.Holder, string(r.Domain), r.Revoked} {
		if err := textFits(text); err != nil {
			return err
		}
	}
	err := cardFits(r.Since, r.Since, r.Card)
	if keeps {
		return err
	}
	for _, pin := range r.Pins {
		if err := insideFits(pin); err != nil {
			return err
		}
	}
	return err
}

// pastFits returns an error if the columns cannot keep the past tenures unchanged.
func pastFits(past []backend.Tenure) error {
	for i := range past {
		p := &past[i]
		if err := cardFits(p.From, p.To, p.Holder.Card, p.Holder.ID, string(p.Why), p.Note); err != nil {
			return err
		}
	}
	return nil
}

// cardFits returns an error if a column cannot keep the data of a tenure.
func cardFits(from, to time.Time, c backend.Card, texts ...string) error {
	for _, t := range [...]time.Time{from, to, c.Started} {
		if y := t.UTC().Year(); y < 0 || y > 9999 {
			return fmt.Errorf("%w: the year %d", backend.ErrInvalid, y)
		}
	}
	for _, text := range texts {
		if err := insideFits(text); err != nil {
			return err
		}
	}
	if err := insideFits(c.Host); err != nil {
		return err
	}
	return insideFits(c.Text)
}

// insideFits returns an error if JSON in a column cannot keep a text. JSON may contain a zero byte.
func insideFits(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("%w: %.100q is not UTF-8", backend.ErrInvalid, text)
	}
	return nil
}

// textFits returns an error if a column cannot keep a text.
func textFits(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return fmt.Errorf("%w: %.100q is not UTF-8, or has a zero byte, which a database does not keep", backend.ErrInvalid, text)
	}
	return nil
}

// found reads a row of statements.get or list. If the row has no record, it returns false.
func found(values []any, m *pastCache) (f claim.Found, mode string, err error) {
	r := reader{values: values, cache: m}
	f.Record.Name = r.text("name")
	none := len(values) > 0 && values[0] == nil
	if none {
		r.skip(len(columns) + 1)
	} else {
		r.record(&f.Record)
		f.Left = time.Duration(r.number("written_at"))
	}
	wrong := r.wrong
	r.wrong = nil
	mode = r.text("mode")
	floor := r.number("floor")
	if r.wrong != nil || floor < 0 {
		return claim.Found{Record: claim.Record{Name: f.Record.Name}}, mode, fmt.Errorf("%w: the row of the namespace: %v", backend.ErrCorrupt, r.wrong)
	}
	f.Floor = backend.Token(floor)
	if none {
		f.Record = claim.Record{}
	}
	if wrong != nil {
		f = claim.Found{Record: claim.Record{Name: f.Record.Name}, Floor: f.Floor, Err: fmt.Errorf("%w: the record of %s: %v: repair it by hand", backend.ErrCorrupt, f.Record.Name, wrong)}
	}
	return f, mode, nil
}

// reader reads the values of a row one after the other, and remembers the first that is invalid.
type reader struct {
	values []any
	wrong  error
	cache  *pastCache // may be nil
}

func (r *reader) skip(n int) { r.values = r.values[min(n, len(r.values)):] }

func (r *reader) next() any {
	if len(r.values) == 0 {
		return nil
	}
	value := r.values[0]
	r.values = r.values[1:]
	return value
}

func (r *reader) fail(column string, value any) {
	if r.wrong == nil {
		r.wrong = fmt.Errorf("%s is %.100q", column, fmt.Sprint(value))
	}
}

func (r *reader) text(column string) string {
	switch v := r.next().(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case nil:
		if column != "name" { // NULL stands for a record that does not exist
			r.fail(column, nil)
		}
		return ""
	default:
		r.fail(column, v)
		return ""
	}
}

func (r *reader) number(column string) int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case int32:
		return int64(v)
	default:
		r.fail(column, v)
		return 0
	}
}

// id reads 128 bits, with hyphens or without.
func (r *reader) id(column string) (id [16]byte) {
	text := r.text(column)
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != len(id) {
		r.fail(column, text)
		return id
	}
	return [16]byte(b)
}

func (r *reader) instant(column string) clock.Instant {
	return clock.Instant{Raw: r.number(column + "_raw"), Boot: r.number(column + "_boot")}
}

func (r *reader) time(column string) time.Time {
	text := r.text(column)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		r.fail(column, text)
	}
	return t.UTC()
}

// mark reads a mark.
func (r *reader) mark() backend.Mark {
	text := r.text("mark")
	m, err := backend.ParseMark(text)
	if err != nil {
		r.fail("mark", text)
	}
	return m
}

// flag reads a boolean, which is a number in some databases.
func (r *reader) flag(column string) bool {
	switch v := r.next().(type) {
	case bool:
		return v
	case int64:
		return v != 0
	default:
		r.fail(column, v)
		return false
	}
}

// document reads JSON into value, if there is any.
func (r *reader) document(column string, value any) {
	r.unmarshal(column, r.text(column), value)
}

// unmarshal reads the text of a column, if there is one.
func (r *reader) unmarshal(column, text string, value any) {
	if text != "" && json.Unmarshal([]byte(text), value) != nil {
		r.fail(column, text)
	}
}

// card reads the card of a holder, if there is one.
func (r *reader) card() backend.Card {
	text := r.text("card")
	if c, ok := readCard(text); ok {
		return c
	}
	var c card
	r.unmarshal("card", text, &c)
	return c.card()
}

// past reads past tenures.
func (r *reader) past(name string, op claim.Op) []backend.Tenure {
	is := history{op: op, recent: r.text("recent"), past: r.text("past")}
	if known, ok := r.cache.meaning(name, &is); ok {
		return known
	}
	is.read, is.all = true, r.tenures("recent", is.recent)
	recent := len(is.all) > 0
	is.all = append(is.all, r.tenures("past", is.past)...)
	if recent { // the columns may have more than the last MaxPast
		is.all = is.all[:min(len(is.all), claim.MaxPast)]
	}
	if r.wrong == nil {
		r.cache.remember(name, is)
	}
	return slices.Clone(is.all)
}

// tenures reads the tenures of one column.
func (r *reader) tenures(column, text string) (list []backend.Tenure) {
	if list, ok := readTenures(text); ok {
		return list
	}
	var all []tenure
	if text != "" && json.Unmarshal([]byte(text), &all) != nil {
		r.fail(column, text)
		return nil
	}
	for _, p := range all {
		list = append(list, backend.Tenure{Token: p.Token, Holder: backend.Holder{ID: p.Holder, Card: p.Card.card()},
			From: fromTime(p.From), To: fromTime(p.To), Why: backend.Reason(p.Why), Note: p.Note})
	}
	return list
}

// record reads columns.
func (r *reader) record(to *claim.Record) {
	to.Holder = r.text("holder")
	token := r.number("token")
	to.Token = backend.Token(token)
	to.Op = r.id("op")
	to.Incarnation = r.id("incarnation")
	to.Domain = clock.Domain(r.text("domain"))
	to.Written = r.instant("written")
	to.Expiry = r.instant("expiry")
	to.TTL = time.Duration(r.number("ttl_ns"))
	to.Card = r.card()
	to.Revoked = r.text("revoked")
	to.Since = r.time("since")
	r.document("pins", &to.Pins)
	to.Mark = r.mark()
	to.Past = r.past(to.Name, to.Op)
	switch {
	case token < 0:
		r.fail("token", token)
	case to.TTL < 0:
		r.fail("ttl_ns", int64(to.TTL))
	case !to.Exists():
		r.fail("op", to.Op)
	}
}
