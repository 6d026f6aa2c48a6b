package claimtest

import (
	"math"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

var recordTests = []test{
	{"MissingRecord", "", testMissingRecord},
	{"EveryField", "", testEveryField},
	{"NamesAreBytes", "", testNamesAreBytes},
	{"RecordsAreCopied", "", testIsNotShared},
}

func testMissingRecord(s *suite) {
	f := s.mustGet(s.open(), "jobs/none")
	if f.Record.Exists() || f.Record.Held() || f.Record.Token != 0 || f.Floor != 0 || f.Err != nil {
		s.Errorf("there is no record, but Get returns %+v", f)
	}
}

// everyCharacter is a text that every store must keep whole.
const everyCharacter = "it's \"quoted\", 100 % sure_ly; back\\slash {\"json\": [1, null]} $1 ? ünïcödé 世界 😀\n\r\n\ttwo lines, -- no comment /* none */"

// extremes are records with every field as large, small, empty or odd as it can be.
func extremes() []claim.Record {
	const name = "jobs/extreme"
	full := claim.Record{
		Name: name, Holder: strings.Repeat("世", backend.MaxHolderID/3), Token: math.MaxInt64, Op: claim.NewOp(),
		Incarnation: backend.ID(claim.NewOp()), Domain: clock.Domain("boot-id " + everyCharacter),
		Written: clock.Instant{Raw: math.MinInt64, Boot: math.MaxInt64},
		Expiry:  clock.Instant{Raw: math.MaxInt64, Boot: math.MinInt64},
		TTL:     math.MaxInt64,
		Pins:    []string{",", "\"quoted\", and, with, commas", "'", everyCharacter, strings.Repeat("p", 1000), "{a,b}"},
		Card: backend.Card{Host: "höst'\"%_", PID: math.MaxInt32, Started: time.Unix(1700000000, 123456789).UTC(),
			Text: strings.Repeat(everyCharacter+" ", backend.MaxCardText/(len(everyCharacter)+1))},
		Revoked: everyCharacter, Since: time.Date(2262, 4, 11, 1, 2, 3, 987654321, time.UTC),
	}
	for i := range claim.MaxPast {
		full.Past = append(full.Past, backend.Tenure{
			Token: backend.Token(math.MaxInt64 - i), From: time.Unix(int64(-i*1000), int64(i)).UTC(), To: time.Unix(int64(i), 999999999).UTC(),
			Holder: backend.Holder{ID: everyCharacterBut("\n\r\t"), Card: full.Card},
			Why:    backend.Revoked, Note: everyCharacter,
		})
	}
	full.Past[3] = backend.Tenure{Token: 1} // with zero times
	full.Mark = backend.Mark{Tick: backend.TickAt(time.Date(2261, 12, 31, 23, 59, 59, 999999999, time.UTC)), Token: math.MaxInt64}
	small := claim.Record{Name: name, Op: claim.Op{15: 1}, Written: clock.Instant{Raw: -1, Boot: -2}, Expiry: clock.Instant{Raw: -1, Boot: -2}}
	ones := claim.Record{
		Name: name, Holder: " ", Token: 1, Op: claim.Op{0: 0xff}, Incarnation: backend.ID{15: 0xff}, Domain: " ",
		Written: clock.Instant{Raw: 1, Boot: -1}, Expiry: clock.Instant{Raw: -1, Boot: 1}, TTL: 1, Pins: []string{""},
		Card: backend.Card{PID: 1, Text: "\n"}, Revoked: " ", Since: time.Unix(0, 0).UTC(), Past: []backend.Tenure{{}}, Mark: backend.Mark{Tick: backend.TickNumber(math.MinInt64)},
	}
	nul := record(name, 2)
	nul.Card.Text = "NUL \x00 is UTF-8 too" // valid by backend.CheckCardText
	return []claim.Record{full, small, ones, nul, full, ones, small}
}

// everyCharacterBut returns everyCharacter without the characters of cut.
func everyCharacterBut(cut string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(cut, r) {
			return -1
		}
		return r
	}, everyCharacter)
}

// Each record is read back as it was written, by every client, and nothing of the earlier one is left.
func testEveryField(s *suite) {
	a, b := s.open(), s.open()
	var old claim.Op
	for i, r := range extremes() {
		r.Op[7] = byte(i) // no op is used twice
		if !s.mustSwap(a, old, r) {
			s.Fatalf("record %d was not written", i)
		}
		old = r.Op
		s.same("read by another client", s.mustGet(b, r.Name).Record, r)
		s.same("read by the writer", s.mustGet(a, r.Name).Record, r)
		all, err := b.List(s.Context(), r.Name, "", 10)
		if err != nil || len(all) != 1 || all[0].Err != nil {
			s.Fatalf("List of record %d: %+v, %v", i, all, err)
		}
		s.same("in a list", all[0].Record, r)
	}
}

// oddNames look alike to some collation, or mean something to some pattern. They are in order of their bytes.
var oddNames = []string{
	"%", "'", "A", "B", "a", "a ", "a!", "a%", "a'", "a*", "a/b", "a?", "aA", "a\\", "a\\%", "a_", "aa", "ab", "a\u0301", "á",
	"b", "ss", strings.Repeat("x", backend.MaxName-1), strings.Repeat("x", backend.MaxName), "x.y", "x/y", "ß", "ı", "世界", "\uff5e", "😀",
}

func testNamesAreBytes(s *suite) {
	store := s.open()
	for i, name := range oddNames {
		if err := backend.CheckName(name); err != nil {
			s.Fatal(err)
		}
		if f := s.mustGet(store, name); f.Record.Exists() {
			s.Fatalf("%q has the record of %q", name, f.Record.Name)
		}
		if !s.mustSwap(store, claim.Op{}, record(name, backend.Token(i+1))) {
			s.Fatalf("%q cannot have a record beside those that look alike", name)
		}
	}
	for i, name := range oddNames {
		if f := s.mustGet(store, name); f.Record.Token != backend.Token(i+1) {
			s.Errorf("%q has token %d, and not %d", name, f.Record.Token, i+1)
		}
	}
}

// A change that a caller makes to its record after the call does not reach the store.
func testIsNotShared(s *suite) {
	store := s.open()
	r := record("jobs/mine", 1)
	r.Pins, r.Past = []string{"a", "b"}, []backend.Tenure{{Token: 7}}
	s.mustSwap(store, claim.Op{}, r)
	want := copied(r)
	r.Pins[0], r.Past[0].Token = "changed", 8
	got := s.mustGet(store, r.Name).Record
	s.same("after the writer changed what it wrote", got, want)
	got.Pins[0], got.Past[0].Token = "changed", 8
	s.same("after a reader changed what it read", s.mustGet(store, r.Name).Record, want)
}
