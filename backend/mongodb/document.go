package mongodb

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// document is a record as it is stored. Names, holders and domains are values in it, never names of fields.
type document struct {
	ID          string         `bson:"_id"` // the namespace, a slash, and the name: unique without any other index
	Namespace   string         `bson:"ns"`
	Name        string         `bson:"name"`
	Mode        string         `bson:"mode"`
	Holder      string         `bson:"holder"` // empty: vacant
	Token       *int64         `bson:"token"`
	Op          string         `bson:"op"`
	Replaced    string         `bson:"replaced"` // the op of the write before
	Turnover    bool           `bson:"turnover"` // the last write changed the owner
	Incarnation string         `bson:"incarnation"`
	Domain      string         `bson:"domain"`
	Written     *reading       `bson:"written"`
	Expiry      *reading       `bson:"expiry"`
	TTL         *int64         `bson:"ttl"` // in nanoseconds
	Pins        []string       `bson:"pins"`
	Card        card           `bson:"card"`
	Revoked     string         `bson:"revoked"`
	Since       *bson.DateTime `bson:"since,omitempty"`
	Past        []tenure       `bson:"past"`
	Mark        string         `bson:"mark,omitempty"` // token and tick; missing if no tick was completed

	// Wrote and Ends are set in store-clock mode: when the record was written and when it ends, by the clock of
	// the primary.
	Wrote *bson.DateTime `bson:"wrote,omitempty"`
	Ends  *bson.DateTime `bson:"ends,omitempty"`
	// Left is not stored, but computed by the read: the milliseconds from then to Ends.
	Left *int64 `bson:"left,omitempty"`
}

// reading is an instant: nanoseconds on the two clocks of the writer's domain.
type reading struct {
	Raw  int64 `bson:"raw"`
	Boot int64 `bson:"boot"`
}

type card struct {
	Host    string         `bson:"host"`
	PID     int64          `bson:"pid"`
	Started *bson.DateTime `bson:"started,omitempty"`
	Text    string         `bson:"text"`
}

type tenure struct {
	Token  int64          `bson:"token"`
	Holder string         `bson:"holder"`
	Card   card           `bson:"card"`
	From   *bson.DateTime `bson:"from,omitempty"`
	To     *bson.DateTime `bson:"to,omitempty"`
	Why    string         `bson:"why"`
	Note   string         `bson:"note"`
}

// date returns a wall-clock time as it is stored, in milliseconds; nil for the zero time.
func date(t time.Time) *bson.DateTime {
	if t.IsZero() {
		return nil
	}
	d := bson.NewDateTimeFromTime(t)
	return &d
}

func timeOf(d *bson.DateTime) time.Time {
	if d == nil {
		return time.Time{}
	}
	return d.Time().UTC()
}

func readingOf(i clock.Instant) *reading { return &reading{Raw: i.Raw, Boot: i.Boot} }

func (r *reading) instant() clock.Instant { return clock.Instant{Raw: r.Raw, Boot: r.Boot} }

func cardOf(c backend.Card) card {
	return card{Host: c.Host, PID: int64(c.PID), Started: date(c.Started), Text: c.Text}
}

func (c card) card() backend.Card {
	return backend.Card{Host: c.Host, PID: int(c.PID), Started: timeOf(c.Started), Text: c.Text}
}

// document returns the document that a swap writes.
func (s *Store) document(w claim.Swap) (document, error) {
	r := w.Record
	if r.Token > math.MaxInt64 || !r.Exists() || r.Name == "" {
		return document{}, fmt.Errorf("mongodb: %w: the record of %q has op %v and token %d, which cannot be kept", backend.ErrInvalid, r.Name, r.Op, r.Token)
	}
	token, ttl := int64(r.Token), int64(r.TTL)
	d := document{
		ID: s.key(r.Name), Namespace: s.config.Namespace, Name: r.Name, Mode: s.mode(),
		Holder: r.Holder, Token: &token, Op: r.Op.String(), Turnover: w.Owner, Incarnation: hex.EncodeToString(r.Incarnation[:]),
		Domain: string(r.Domain), Written: readingOf(r.Written), Expiry: readingOf(r.Expiry), TTL: &ttl,
		Pins: append([]string{}, r.Pins...), Card: cardOf(r.Card), Revoked: r.Revoked, Since: date(r.Since), Past: []tenure{},
		Mark: r.Mark.Text(),
	}
	if w.Old != (claim.Op{}) {
		d.Replaced = w.Old.String()
	}
	for _, p := range r.Past {
		if p.Token > math.MaxInt64 {
			return document{}, fmt.Errorf("mongodb: %w: a past token of %q is %d, which cannot be kept", backend.ErrInvalid, r.Name, p.Token)
		}
		d.Past = append(d.Past, tenure{
			Token: int64(p.Token), Holder: p.Holder.ID, Card: cardOf(p.Holder.Card), From: date(p.From), To: date(p.To),
			Why: string(p.Why), Note: p.Note,
		})
	}
	return d, nil
}

// extension has the fields of a document that a renewal changes.
type extension struct {
	Op       string   `bson:"op"`
	Replaced string   `bson:"replaced"`
	Turnover bool     `bson:"turnover"`
	Domain   string   `bson:"domain"`
	Written  *reading `bson:"written"`
	Expiry   *reading `bson:"expiry"`
	TTL      *int64   `bson:"ttl"`
}

func (d *document) extended() extension {
	return extension{Op: d.Op, Replaced: d.Replaced, Turnover: d.Turnover, Domain: d.Domain, Written: d.Written, Expiry: d.Expiry, TTL: d.TTL}
}

// corrupt returns the error for a document that cannot be read as a record.
func (s *Store) corrupt(id string, format string, args ...any) error {
	return fmt.Errorf("mongodb: %w: in %s the document with _id %q %s: repair it by hand, or delete it and raise the floor above its token",
		backend.ErrCorrupt, s.records.Name(), id, fmt.Sprintf(format, args...))
}

// found reads the document that has this _id.
func (s *Store) found(id string, raw bson.Raw) (claim.Found, error) {
	var d document
	if err := bson.Unmarshal(raw, &d); err != nil {
		return claim.Found{}, s.corrupt(id, "cannot be read: %v", err)
	}
	switch {
	case d.ID != id || d.Namespace+"/"+d.Name != id:
		return claim.Found{}, s.corrupt(id, "says that it is of %q in the namespace %q", d.Name, d.Namespace)
	case d.Mode != s.mode():
		return claim.Found{}, s.corrupt(id, "was written in the mode %q, and the namespace has %q", d.Mode, s.mode())
	case d.Token == nil || *d.Token < 0:
		return claim.Found{}, s.corrupt(id, "has no token, or a negative one")
	case d.Written == nil || d.Expiry == nil || d.TTL == nil || *d.TTL < 0:
		return claim.Found{}, s.corrupt(id, "lacks written, expiry or ttl, or ttl is negative")
	case s.config.StoreClock && d.Left == nil:
		return claim.Found{}, s.corrupt(id, "has no date in ends")
	}
	r := claim.Record{
		Name: d.Name, Holder: d.Holder, Token: backend.Token(*d.Token), Domain: clock.Domain(d.Domain),
		Written: d.Written.instant(), Expiry: d.Expiry.instant(), TTL: time.Duration(*d.TTL), Pins: d.Pins,
		Card: d.Card.card(), Revoked: d.Revoked, Since: timeOf(d.Since),
	}
	if !readHex(r.Op[:], d.Op) || !r.Exists() {
		return claim.Found{}, s.corrupt(id, "has %q as its op", d.Op)
	}
	if !readHex(r.Incarnation[:], d.Incarnation) {
		return claim.Found{}, s.corrupt(id, "has %q as its incarnation", d.Incarnation)
	}
	var err error
	if r.Mark, err = backend.ParseMark(d.Mark); err != nil {
		return claim.Found{}, s.corrupt(id, "has %q as its mark", d.Mark)
	}
	for _, p := range d.Past {
		if p.Token < 0 {
			return claim.Found{}, s.corrupt(id, "has the past token %d", p.Token)
		}
		r.Past = append(r.Past, backend.Tenure{
			Token: backend.Token(p.Token), Holder: backend.Holder{ID: p.Holder, Card: p.Card.card()},
			From: timeOf(p.From), To: timeOf(p.To), Why: backend.Reason(p.Why), Note: p.Note,
		})
	}
	f := claim.Found{Record: r}
	if d.Left != nil {
		f.Left = milliseconds(*d.Left)
	}
	return f, nil
}

// readHex reads exactly as many bytes as into has room for, in lower case as they were written. A value that
// equals no written one must not be read as one.
func readHex(into []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(into)) || text != strings.ToLower(text) {
		return false
	}
	_, err := hex.Decode(into, []byte(text))
	return err == nil
}

// milliseconds returns n milliseconds, or the nearest duration that exists.
func milliseconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(-most, min(most, n))) * time.Millisecond
}
