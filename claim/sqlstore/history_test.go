package sqlstore

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// tenureOf makes a tenure, in a zone that no database returns.
func tenureOf(token int) backend.Tenure {
	at := time.Unix(int64(token), 0).In(time.FixedZone("", 3600))
	return backend.Tenure{Token: backend.Token(token), From: at, To: at.Add(time.Second), Why: backend.Released,
		Holder: backend.Holder{ID: "me", Card: backend.Card{Host: "here", Started: at, Text: fmt.Sprint("the ", token)}}}
}

// However many tenures are added, a read returns what was written, most writes leave the column past unchanged,
// and neither column grows without end.
func TestPastIsReadAsItWasWritten(t *testing.T) {
	m, r := &pastCache{}, claim.Record{Name: "jobs/x"}
	var past string // the text of the column
	same := 0
	for token := 1; token <= 100; token++ {
		old := r.Op
		r.Op, r.Past = claim.NewOp(), append([]backend.Tenure{tenureOf(token)}, r.Past[:min(len(r.Past), claim.MaxPast-1)]...)
		is, kept := m.historyOf(&r, old, true)
		if kept {
			same++
		} else {
			past = is.past
		}
		if len(is.recent) > maxRecent || strings.Count(past, "token") > claim.MaxPast {
			t.Fatalf("%d tenures in %s and %s", token, is.recent, past)
		}
		m.remember(r.Name, is)
		for _, m := range []*pastCache{m, nil, {}} { // with a cache, and without
			read := reader{values: []any{is.recent, past}, cache: m}
			if all := read.past(r.Name, r.Op); read.wrong != nil || !reflect.DeepEqual(all, asRead(r.Past)) {
				t.Fatalf("%d tenures are read as %v, %v from %s and %s", token, all, read.wrong, is.recent, past)
			}
		}
	}
	if same < 75 {
		t.Errorf("%d of 100 writes left the past as it was", same)
	}
}

// A write leaves the past unchanged only if its text is known for the very row that it replaces.
func TestPastIsWrittenInFullUnlessTheRowIsKnown(t *testing.T) {
	op, list := claim.NewOp(), []backend.Tenure{tenureOf(2), tenureOf(1)}
	is := history{op: op, recent: pastText(list[:1]), past: pastText(list[1:]), read: true, all: asRead(list)}
	next := append([]backend.Tenure{tenureOf(3)}, list...)
	long := append([]backend.Tenure(nil), next...)
	long[0].Note = strings.Repeat("x", maxRecent)
	for name, c := range map[string]struct { // order: each case is independent
		name   string
		old    claim.Op
		recent string
		all    []backend.Tenure
		same   bool
	}{
		"one more":               {"jobs/x", op, is.recent, next, true},
		"it does not say so":     {"jobs/x", op, is.recent, next, false},
		"none":                   {"jobs/x", op, is.recent, nil, false},
		"a long one":             {"jobs/x", op, is.recent, long, false},
		"another row":            {"jobs/x", claim.NewOp(), is.recent, next, false},
		"another name":           {"jobs/y", op, is.recent, next, false},
		"another program wrote":  {"jobs/x", op, " " + is.recent, next, false},
		"another emptied it":     {"jobs/x", op, "[]", next, false},
		"another shortened it":   {"jobs/x", op, "[", next, false},
		"nothing is in recent":   {"jobs/x", op, "", next, true},
		"it is a row to be made": {"jobs/x", claim.Op{}, is.recent, next, false},
	} {
		m, was := &pastCache{}, is
		was.recent = c.recent
		m.remember("jobs/x", was)
		r := claim.Record{Name: c.name, Op: claim.NewOp(), Past: c.all}
		written, same := m.historyOf(&r, c.old, name != "it does not say so")
		if same != c.same || written.op != r.Op {
			t.Errorf("%s: %v, %+v", name, same, written)
		}
		if same && (written.past != is.past || written.recent != pastText(next[:1+strings.Count(c.recent, "token")]) || written.read) {
			t.Errorf("%s: %+v", name, written)
		}
		if !same && (written.recent != "" || written.past != pastText(c.all) || !reflect.DeepEqual(written.all, asRead(c.all))) {
			t.Errorf("%s: %+v", name, written)
		}
		if known, ok := m.rowHistory("jobs/x", op); !ok || !reflect.DeepEqual(known, was) {
			t.Errorf("%s: what is remembered was changed before it was written: %+v", name, known)
		}
	}
}

// The cache knows the history of one row, shares no memory with callers, and is bounded.
func TestPastCacheIsBoundedAndOfOneRow(t *testing.T) {
	m, op, next := &pastCache{}, claim.NewOp(), claim.NewOp()
	m.remember("a", history{op: op, recent: "[1]", past: "[2]", read: true, all: []backend.Tenure{{Token: 1}}})
	past, ok := m.meaning("a", &history{op: op, recent: "[1]", past: "[2]"})
	if !ok || past[0].Token != 1 {
		t.Fatal(past, ok)
	}
	past[0].Token = 2
	if past, ok := m.meaning("a", &history{op: op, recent: "[1]", past: "[2]"}); !ok || past[0].Token != 1 {
		t.Error("what was given out was changed inside", past, ok)
	}
	for _, other := range []struct{ name, recent, past string }{{"a", "[1]", "[1]"}, {"a", "[2]", "[2]"}, {"b", "[1]", "[2]"}, {"a", "", ""}} {
		if past, ok := m.meaning(other.name, &history{op: next, recent: other.recent, past: other.past}); ok {
			t.Errorf("%v is known as %v", other, past)
		}
	}
	m.movedTo("a", next, claim.NewOp()) // of another row
	m.movedTo("b", op, next)
	if _, ok := m.rowHistory("a", op); !ok {
		t.Error("it was forgotten")
	}
	m.movedTo("a", op, next)
	if _, ok := m.rowHistory("a", op); ok {
		t.Error("the row has another op now")
	}
	if _, ok := m.rowHistory("a", next); !ok {
		t.Error("of the row with the other op it is not known")
	}
	for i := range 2 * maxMemory {
		m.remember(strings.Repeat("x", i+1), history{})
	}
	if len(m.names) > maxMemory {
		t.Errorf("%d names are remembered", len(m.names))
	}
}

// A tenure that is added to a known past is checked like any other.
func TestTenureAddedToAKnownPastIsChecked(t *testing.T) {
	s, db := scripted(t, SQLite, Config{})
	db.answer = func(string, []any) ([][]any, error) { return [][]any{{int64(1)}}, nil }
	first, next := some, some
	first.Op, next.Op = claim.NewOp(), claim.NewOp()
	if done, err := s.Swap(t.Context(), claim.Swap{Old: claim.NewOp(), Record: first, Owner: true}); !done || err != nil {
		t.Fatal(done, err)
	}
	db.asked = nil
	for _, bad := range []backend.Tenure{{Note: "\xff"}, {To: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)}} {
		next.Past = []backend.Tenure{bad}
		_, err := s.Swap(t.Context(), claim.Swap{Old: first.Op, Record: next, Owner: true, Adds: true})
		is(t, err, backend.ErrInvalid)
	}
	if len(db.asked) > 0 {
		t.Errorf("the database was asked: %q", db.asked)
	}
}
