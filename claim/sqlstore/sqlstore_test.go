package sqlstore

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// scriptedDB is a database that answers as the test says.
type scriptedDB struct {
	asked   []string
	answer  func(statement string, args []any) ([][]any, error)
	scripts error // of Script
}

func (s *scriptedDB) Query(_ context.Context, statement string, args ...any) ([][]any, error) {
	s.asked = append(s.asked, statement)
	return s.answer(statement, args)
}

func (s *scriptedDB) Script(context.Context, string) error { return s.scripts }

// scripted returns a store on a database without faults at first.
func scripted(t *testing.T, d Dialect, c Config) (*Store, *scriptedDB) {
	t.Helper()
	db := &scriptedDB{}
	db.answer = func(statement string, _ []any) ([][]any, error) {
		if strings.Contains(statement, "max(version)") {
			return [][]any{{int64(Version), true}}, nil
		}
		return [][]any{{c.mode(), int64(0), "on"}}, nil
	}
	s, err := New(t.Context(), db, d, c)
	if err != nil {
		t.Fatal(err)
	}
	db.asked = nil
	return s, db
}

func is(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	for _, other := range []error{backend.ErrUnavailable, backend.ErrUnknownOutcome, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrClosed} {
		if other != kind && errors.Is(err, other) {
			t.Errorf("%v is also %v", err, other)
		}
	}
}

var some = claim.Record{Name: "jobs/x", Holder: "me", Token: 1, Op: claim.NewOp(), Domain: "d"}

// A failure that leaves the outcome of a write unknown is an ordinary failure of a read.
func TestReadsHaveNoUnknownOutcome(t *testing.T) {
	s, db := scripted(t, SQLite, Config{})
	for _, kind := range []error{backend.ErrUnknownOutcome, backend.ErrUnavailable, backend.ErrInvalid, backend.ErrCorrupt, backend.ErrClosed} {
		db.answer = func(string, []any) ([][]any, error) { return nil, &Failure{Kind: kind, Err: errors.New("cut")} }
		_, err := s.Swap(t.Context(), claim.Swap{Record: some})
		is(t, err, kind)
		_, err = s.SwapAll(t.Context(), []claim.Swap{{Old: claim.NewOp(), Record: some}})
		is(t, err, kind)
		_, err = s.RaiseFloor(t.Context(), 1)
		is(t, err, kind)
		if kind == backend.ErrUnknownOutcome {
			kind = backend.ErrUnavailable
		}
		_, err = s.Get(t.Context(), "x")
		is(t, err, kind)
		_, err = s.List(t.Context(), "x", "", 1)
		is(t, err, kind)
	}
	db.answer = func(string, []any) ([][]any, error) { return nil, errors.New("a driver that says nothing about it") }
	_, err := s.Swap(t.Context(), claim.Swap{Record: some})
	is(t, err, backend.ErrUnknownOutcome)
}

// An opening makes what is missing, so that one whose outcome is unknown may simply be repeated.
func TestOpeningHasNoUnknownOutcome(t *testing.T) {
	cut := &Failure{Kind: backend.ErrUnknownOutcome, Err: errors.New("cut")}
	for _, fails := range []string{"max(version)", "mode", "INSERT"} {
		db := &scriptedDB{answer: func(statement string, _ []any) ([][]any, error) {
			switch {
			case strings.Contains(statement, fails):
				return nil, cut
			case strings.Contains(statement, "max(version)"):
				return [][]any{{int64(Version), true}}, nil
			}
			return nil, nil // there is no namespace
		}}
		_, err := New(t.Context(), db, SQLite, Config{})
		is(t, err, backend.ErrUnavailable)
	}
	empty := &scriptedDB{scripts: cut, answer: func(string, []any) ([][]any, error) {
		return nil, &Failure{Kind: backend.ErrInvalid, Missing: true, Err: errors.New("no such table")}
	}}
	_, err := New(t.Context(), empty, SQLite, Config{})
	is(t, err, backend.ErrUnavailable)
	broken := &scriptedDB{answer: func(string, []any) ([][]any, error) { return nil, cut }}
	_, err = TablesVersion(t.Context(), broken, SQLite, Config{})
	is(t, err, backend.ErrUnavailable)
}

// A batch that was partly done is not reported as having changed nothing.
func TestBatchThatFailsHalfwayHasAnUnknownOutcome(t *testing.T) {
	s, db := scripted(t, SQLite, Config{})
	fails := 2
	db.answer = func(string, []any) ([][]any, error) {
		if len(db.asked) >= fails {
			return nil, &Failure{Kind: backend.ErrUnavailable, Err: errors.New("gone")}
		}
		return [][]any{{int64(1)}}, nil
	}
	swaps := []claim.Swap{{Owner: true, Record: some}, {Owner: true, Record: some}}
	_, err := s.SwapAll(t.Context(), swaps)
	if !errors.Is(err, backend.ErrUnknownOutcome) {
		t.Error(err)
	}
	db.asked, fails = nil, 1
	_, err = s.SwapAll(t.Context(), swaps)
	is(t, err, backend.ErrUnavailable)
}

func TestBusyDatabaseIsAskedAgain(t *testing.T) { synctest.Test(t, busyIsAskedAgain) }

// busyIsAskedAgain runs in virtual time: on a busy machine the patience would end before the fifth attempt.
func busyIsAskedAgain(t *testing.T) {
	s, db := scripted(t, SQLite, Config{Patience: 300 * time.Millisecond})
	busy := &Failure{Kind: backend.ErrUnavailable, Again: true, Advice: "find the other", Err: errors.New("locked")}
	db.answer = func(string, []any) ([][]any, error) {
		if len(db.asked) < 5 {
			return nil, busy
		}
		return [][]any{{int64(1)}}, nil
	}
	if done, err := s.Swap(t.Context(), claim.Swap{Record: some}); !done || err != nil {
		t.Fatal(done, err)
	}
	db.answer = func(string, []any) ([][]any, error) { return nil, busy }
	db.asked = nil
	_, err := s.Swap(t.Context(), claim.Swap{Record: some})
	is(t, err, backend.ErrUnavailable)
	if n := len(db.asked); n < 5 || n > 300 || !strings.Contains(err.Error(), "find the other") {
		t.Errorf("asked %d times: %v", n, err)
	}
	const patience = time.Minute
	s, db = scripted(t, SQLite, Config{Patience: patience})
	db.answer = func(string, []any) ([][]any, error) { return nil, busy }
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = s.Swap(ctx, claim.Swap{Record: some})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > patience/2 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	is(t, err, backend.ErrUnavailable)
}

func TestRecordThatDoesNotFitIsRefused(t *testing.T) {
	s, db := scripted(t, SQLite, Config{})
	for what, spoil := range map[string]func(*claim.Record){ // order: each case is independent
		"token":   func(r *claim.Record) { r.Token = 1 << 63 },
		"holder":  func(r *claim.Record) { r.Holder = "a\x00b" },
		"name":    func(r *claim.Record) { r.Name = "\xff" },
		"no name": func(r *claim.Record) { r.Name = "" },
		"domain":  func(r *claim.Record) { r.Domain = "\xff" },
		"revoked": func(r *claim.Record) { r.Revoked = "\x00" },
		"pin":     func(r *claim.Record) { r.Pins = []string{"\xff"} },
		"note":    func(r *claim.Record) { r.Past = []backend.Tenure{{Note: "\xff"}} },
		"year":    func(r *claim.Record) { r.Since = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"started": func(r *claim.Record) { r.Card.Started = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"op":      func(r *claim.Record) { r.Op = claim.Op{} },
	} {
		r := some
		spoil(&r)
		if _, err := s.Swap(t.Context(), claim.Swap{Record: r}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.RaiseFloor(t.Context(), 1<<63)
	is(t, err, backend.ErrInvalid)
	_, err = s.Get(t.Context(), "a\x00")
	is(t, err, backend.ErrInvalid)
	_, err = s.Swap(t.Context(), claim.Swap{Old: claim.NewOp(), Record: some, Ended: true})
	is(t, err, backend.ErrInvalid)
	if len(db.asked) > 0 {
		t.Errorf("the database was asked: %q", db.asked)
	}
}

// An unknown domain has no observations, and shares none.
func TestUnknownDomainStoresNoObservation(t *testing.T) {
	s, db := scripted(t, SQLite, Config{})
	at := clock.Instant{Raw: 7, Boot: 8}
	if kept, err := s.Observe(t.Context(), "x", clock.UnknownDomain, claim.NewOp(), at); kept != at || err != nil {
		t.Error(kept, err)
	}
	if err := s.Acknowledge(t.Context(), clock.UnknownDomain, at); err != nil {
		t.Error(err)
	}
	if _, known, err := s.Acknowledged(t.Context(), clock.UnknownDomain); known || err != nil {
		t.Error(known, err)
	}
	if len(db.asked) > 0 {
		t.Errorf("the database was asked: %q", db.asked)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{
		{Namespace: "a//b"}, {Prefix: "Robert'); --"}, {Prefix: strings.Repeat("x", maxPrefix+1)}, {Patience: -1}, {Schema: "a\x00"},
	} {
		if _, err := New(t.Context(), &scriptedDB{}, SQLite, c); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Schema(SQLite, "a b"); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

func TestURLSettingsOverrideTheConfig(t *testing.T) {
	query, _ := url.ParseQuery("ns=a&prefix=b_&schema=c&clock=store&accept=loss&sslmode=disable")
	c, err := Settings(query, Config{Namespace: "old"})
	if want := (Config{Namespace: "a", Prefix: "b_", Schema: "c", StoreClock: true, AcceptLoss: true}); c != want || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
	if len(query) != 1 || query.Get("sslmode") != "disable" {
		t.Errorf("left is %v", query)
	}
	for _, bad := range []string{"ns=", "ns=a&ns=b", "clock=mine", "accept=all"} {
		query, _ := url.ParseQuery(bad)
		if _, err := Settings(query, Config{}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A range has all names that begin with the prefix, and no others.
func TestRangeOfAPrefixHasExactlyItsNames(t *testing.T) {
	for prefix, want := range map[string]string{
		"": "", "a": "b", "jobs/": "jobs0", "\u007f": "\u0080", "\ud7ff": "\ue000", "a\U0010ffff": "b", "\U0010ffff": "", "é": "ê",
	} {
		if got := following(prefix); got != want {
			t.Errorf("after %q follows %q, and not %q", prefix, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		prefix, name := rapid.String().Draw(t, "prefix"), rapid.String().Draw(t, "name")
		if rapid.Bool().Draw(t, "inside") {
			name = prefix + name
		}
		end := following(prefix)
		if !utf8.ValidString(end) {
			t.Fatalf("%q is not UTF-8", end)
		}
		if in := name >= prefix && (end == "" || name < end); in != strings.HasPrefix(name, prefix) {
			t.Fatalf("%q from %q to %q: %v", name, prefix, end, in)
		}
	})
}

// Every row gives a record or an error, and the error names what cannot be read.
func TestUnreadableRowsAreErrorsThatNameTheColumn(t *testing.T) {
	good, err := row(nil, &some, false, true)
	if err != nil {
		t.Fatal(err)
	}
	values := func() []any { return append(append([]any{"jobs/x"}, good...), "", "", int64(0), "writer", int64(0)) }
	if f, _, err := found(values(), nil); err != nil || f.Err != nil || f.Record.Op != some.Op {
		t.Fatalf("%+v, %v", f, err)
	}
	for i, column := range columns {
		for _, bad := range []any{nil, 1.5, true, "what?", int64(-1), []byte("{")} {
			number := slices.Contains(sqliteIntegers, column)
			if _, ok := bad.(int64); ok && number && column != "token" && column != "ttl_ns" {
				continue
			}
			_, text := bad.(string)
			_, bytes := bad.([]byte)
			if (text || bytes) && slices.Contains([]string{"holder", "domain", "revoked"}, column) {
				continue
			}
			row := values()
			row[i+1] = bad
			f, _, err := found(row, nil)
			if err != nil || !errors.Is(f.Err, backend.ErrCorrupt) || f.Record.Name != "jobs/x" || f.Record.Exists() || !strings.Contains(f.Err.Error(), strings.TrimSuffix(column, "_ns")) {
				t.Errorf("%s is %v: %+v, %v", column, bad, f, err)
			}
		}
	}
	for _, floor := range []any{nil, int64(-1), "x"} {
		row := values()
		row[len(row)-1] = floor
		if _, _, err := found(row, nil); !errors.Is(err, backend.ErrCorrupt) {
			t.Errorf("a floor of %v: %v", floor, err)
		}
	}
}

// No decision depends on a clock that people can set: not on the wall clock of a machine, and on that of the
// database only in store-clock mode.
func TestNoStatementReadsTheWallClock(t *testing.T) {
	count := func(d Dialect, word string) (n int) {
		s := d.statements(tables{prefix: DefaultPrefix})
		s.each(func(text string) string {
			n += strings.Count(strings.ToLower(text), word)
			return text
		})
		return n
	}
	for _, word := range []string{"now(", "now'", "current_time", "current_date", "datetime(", "julianday", "unixepoch", "strftime", "localtime", "statement_timestamp"} {
		if n := count(SQLite, word) + count(PostgreSQL, word); n > 0 {
			t.Errorf("%q is in %d places", word, n)
		}
	}
	if n := count(SQLite, "timestamp"); n > 0 {
		t.Errorf("SQLite is asked for the time in %d places", n)
	}
}

func TestSchemaDescribesItsTables(t *testing.T) {
	for _, d := range []Dialect{SQLite, PostgreSQL} {
		text, err := Schema(d, "locks_")
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range append([]string{`"locks_lease"`, `"locks_sighting"`, `"locks_clock"`, `"locks_namespace"`, "PRIMARY KEY (ns, name)"}, columns...) {
			if !strings.Contains(text, part) {
				t.Errorf("%s: there is no %s", d.Scheme(), part)
			}
		}
		for _, a := range aboutColumns {
			if !strings.Contains(text, a.text) {
				t.Errorf("%s: nothing is said about %s", d.Scheme(), a.column)
			}
		}
		if strings.ContainsAny(text, "{}") {
			t.Errorf("%s: something was not filled in:\n%s", d.Scheme(), text)
		}
	}
}
