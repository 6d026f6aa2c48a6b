package mongodb

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// statementOf returns the only statement of the only update so far.
func statementOf(t *testing.T, p *peer) bson.Raw {
	t.Helper()
	all := p.commands("update")
	if len(all) != 1 {
		t.Fatalf("%d updates", len(all))
	}
	updates, err := all[0].Lookup("updates").Array().Values()
	if err != nil || len(updates) != 1 {
		t.Fatalf("%v, %v", updates, err)
	}
	return updates[0].Document()
}

// asJSON returns a value as JSON, for people and for comparisons.
func asJSON(t *testing.T, v bson.RawValue) string {
	t.Helper()
	text, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: v}}, false, false)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(text), `{"v":`), `}`)
}

func TestSwapComparesTheOp(t *testing.T) {
	p := newPeer(t, ofASet, nil)
	s := p.openStore(Config{})
	old, r := claim.NewOp(), testRecord("jobs/x")
	if done, err := s.Swap(t.Context(), claim.Swap{Old: old, Record: r, Owner: true}); !done || err != nil {
		t.Fatal(done, err)
	}
	u := statementOf(t, p)
	if got, want := asJSON(t, u.Lookup("q")), `{"_id":"default/jobs/x","op":"`+old.String()+`","mode":"writer"}`; got != want {
		t.Errorf("the filter is %s, and not %s", got, want)
	}
	for _, key := range []string{"upsert", "multi"} {
		if v, err := u.LookupErr(key); err == nil && v.Boolean() {
			t.Errorf("the update has %s", key)
		}
	}
	is := u.Lookup("u").Document()
	if is.Lookup("replaced").StringValue() != old.String() || is.Lookup("op").StringValue() != r.Op.String() || !is.Lookup("turnover").Boolean() {
		t.Errorf("the document is %v", is)
	}
}

// In store-clock mode the time is the primary's, the write itself checks the end, and a holder's id is never
// taken for an expression.
func TestStoreClockIsInTheWrite(t *testing.T) {
	r := testRecord("jobs/x")
	old := claim.NewOp()
	ends := `{"$add":["$$NOW",30000]}`
	filter := `{"_id":"default/jobs/x","op":"` + old.String() + `","mode":"store"`
	for _, c := range []struct {
		what         string
		swap         claim.Swap
		filter, ends string
		upsert       bool
	}{
		{"new owner", claim.Swap{Old: old, Record: r, Owner: true}, filter + `}`, ends, false},
		{"renewal", claim.Swap{Old: old, Record: r}, filter + `}`, `{"$max":["$ends",` + ends + `]}`, false},
		{"takeover", claim.Swap{Old: old, Record: r, Owner: true, Ended: true}, filter + `,"$expr":{"$gt":["$$NOW","$ends"]}}`, ends, false},
		{"first", claim.Swap{Record: r, Owner: true}, `{"_id":"default/jobs/x","op":{"$in":[]}}`, ends, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := newPeer(t, ofASet, nil)
			s := p.openStore(Config{StoreClock: true})
			if done, err := s.Swap(t.Context(), c.swap); !done || err != nil {
				t.Fatal(done, err)
			}
			u := statementOf(t, p)
			if got := asJSON(t, u.Lookup("q")); got != c.filter {
				t.Errorf("the filter is %s, and not %s", got, c.filter)
			}
			stages, _ := u.Lookup("u").Array().Values()
			if len(stages) != 1 {
				t.Fatalf("%d stages", len(stages))
			}
			merged, _ := stages[0].Document().Lookup("$replaceWith", "$mergeObjects").Array().Values()
			if len(merged) != 2 {
				t.Fatalf("%v", stages)
			}
			if holder := merged[0].Document().Lookup("$literal", "holder").StringValue(); holder != "$$ROOT" {
				t.Errorf("the holder is %q", holder)
			}
			if got, want := asJSON(t, merged[1]), `{"wrote":"$$NOW","ends":`+c.ends+`}`; got != want {
				t.Errorf("it adds %s, and not %s", got, want)
			}
			if upsert, _ := u.Lookup("upsert").BooleanOK(); upsert != c.upsert {
				t.Errorf("upsert is %v", upsert)
			}
		})
	}
	s := newPeer(t, ofASet, nil).openStore(Config{})
	if _, err := s.Swap(t.Context(), claim.Swap{Old: old, Record: r, Ended: true}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("by the writer's clock the store was asked to judge: %v", err)
	}
}

// Renewals are most of all writes, and a record has a long past: they send only what they change.
func TestRenewalsWriteOnlyWhatTheyChange(t *testing.T) {
	r, old := testRecord("jobs/x"), claim.NewOp()
	r.Past = []backend.Tenure{{Token: 5, Holder: backend.Holder{ID: "b"}}}
	r.Domain = "$domain"
	changed := []string{"op", "replaced", "turnover", "domain", "written", "expiry", "ttl"}
	keys := func(d bson.Raw) (all []string) {
		elements, err := d.Elements()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements {
			all = append(all, e.Key())
		}
		return all
	}
	for _, byStore := range []bool{false, true} {
		p := newPeer(t, ofASet, nil)
		s := p.openStore(Config{StoreClock: byStore})
		if done, err := s.Swap(t.Context(), claim.Swap{Old: old, Record: r, Extends: true}); !done || err != nil {
			t.Fatal(done, err)
		}
		u := statementOf(t, p)
		if from := u.Lookup("q", "op").StringValue(); from != old.String() {
			t.Errorf("it is written over %s", from)
		}
		var set bson.Raw
		if !byStore {
			set = u.Lookup("u", "$set").Document()
		} else {
			stages, _ := u.Lookup("u").Array().Values()
			merged, _ := stages[0].Document().Lookup("$replaceWith", "$mergeObjects").Array().Values()
			if len(merged) != 3 || merged[0].StringValue() != "$$ROOT" || len(keys(merged[2].Document())) != 2 {
				t.Fatalf("%v", stages)
			}
			set = merged[1].Document().Lookup("$literal").Document()
		}
		if !slices.Equal(keys(set), changed) || set.Lookup("op").StringValue() != r.Op.String() || set.Lookup("replaced").StringValue() != old.String() ||
			set.Lookup("domain").StringValue() != "$domain" || set.Lookup("turnover").Boolean() {
			t.Errorf("by the store's clock: %v; it sets %v", byStore, set)
		}
	}
	// A swap that changes more than a renewal does, or creates the record, is sent as a whole.
	for _, w := range []claim.Swap{{Old: old, Record: r, Extends: true, Owner: true}, {Old: old, Record: r}} {
		p := newPeer(t, ofASet, nil)
		if done, err := p.openStore(Config{}).Swap(t.Context(), w); !done || err != nil {
			t.Fatal(done, err)
		}
		if whole := statementOf(t, p).Lookup("u").Document(); whole.Lookup("name").StringValue() != "jobs/x" {
			t.Errorf("%v", whole)
		}
	}
}

// A read in store-clock mode returns the remaining time.
func TestLeftIsReadInStoreClockMode(t *testing.T) {
	p := newPeer(t, ofASet, nil)
	s := p.openStore(Config{StoreClock: true})
	d, err := s.document(claim.Swap{Record: testRecord("jobs/x")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		left *int64
		is   time.Duration
		kind error
	}{{new(int64), 0, nil}, {ptr(-1), -time.Millisecond, nil}, {ptr(1500), 1500 * time.Millisecond, nil}, {ptr(math.MaxInt64), milliseconds(math.MaxInt64), nil}, {nil, 0, backend.ErrCorrupt}} {
		d.Left = c.left
		p.answers(func(name string, body bson.Raw) bson.D {
			if name == "aggregate" {
				return cursor(d)
			}
			return namespaceOf(byStore)(name, body)
		})
		f, err := s.Get(t.Context(), "jobs/x")
		if f.Left != c.is || !errors.Is(err, c.kind) {
			t.Errorf("%v, %v", f.Left, err)
		}
		all, err := s.List(t.Context(), "", "", 1)
		if err != nil || len(all) != 1 || all[0].Left != c.is || !errors.Is(all[0].Err, c.kind) {
			t.Errorf("%v, %v", all, err)
		}
	}
	one := p.commands("aggregate")[0]
	level, _ := one.Lookup("readConcern", "level").StringValueOK()
	if _, err := one.LookupErr("maxTimeMS"); err != nil || level != "linearizable" {
		t.Errorf("one record is read by %v", one)
	}
	if got := asJSON(t, one.Lookup("pipeline")); got != `[{"$match":{"_id":"default/jobs/x"}},{"$addFields":{"left":{"$subtract":["$ends","$$NOW"]}}}]` {
		t.Error(got)
	}
}

func ptr(n int64) *int64 { return &n }

func TestMillisecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 30 * time.Second: 30000, -time.Hour: 0, math.MaxInt64: math.MaxInt64/1_000_000 + 1} {
		if got := inMilliseconds(d); got != want {
			t.Errorf("%v: %d", d, got)
		}
	}
}

// The longest statement of a promise counts.
func TestLongestPromiseCounts(t *testing.T) {
	for _, c := range []struct {
		r    claim.Record
		want time.Duration
	}{
		{claim.Record{TTL: 5}, 5},
		{claim.Record{TTL: 5, Written: clock.Instant{Raw: 1, Boot: 1}, Expiry: clock.Instant{Raw: 2, Boot: 11}}, 10},
		{claim.Record{TTL: 5, Written: clock.Instant{Raw: 1, Boot: 1}, Expiry: clock.Instant{Raw: 21, Boot: 1}}, 20},
		{claim.Record{Written: clock.Instant{Raw: 7, Boot: 7}, Expiry: clock.Instant{Raw: 7, Boot: 7}}, 0},
	} {
		if got := promised(c.r); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}

// The server only counts how many of many updates it has done, so a read of the documents shows which.
func TestDoneUpdatesAreFoundByTheirOps(t *testing.T) {
	old := []claim.Op{claim.NewOp(), claim.NewOp(), claim.NewOp()}
	var swaps []claim.Swap
	for i, name := range []string{"a", "b", "c"} {
		swaps = append(swaps, claim.Swap{Old: old[i], Record: testRecord(name)})
	}
	is := func(i int, op, replaced claim.Op) bson.D {
		return bson.D{{Key: "_id", Value: "default/" + swaps[i].Record.Name}, {Key: "op", Value: op.String()}, {Key: "replaced", Value: replaced.String()}}
	}
	mine := func(i int) bson.D { return is(i, swaps[i].Record.Op, old[i]) }
	other := claim.NewOp
	for _, c := range []struct {
		what  string
		n     int32
		found []any
		done  []bool // nil: unknown
		asks  bool
	}{
		{"all", 3, nil, []bool{true, true, true}, false},
		{"none", 0, nil, []bool{false, false, false}, false},
		{"one as it was", 2, []any{mine(0), is(1, old[1], other()), mine(2)}, []bool{true, false, true}, true},
		{"one overwritten by another instead", 2, []any{mine(0), is(1, other(), old[1]), mine(2)}, []bool{true, false, true}, true},
		{"one overwritten long ago", 2, []any{mine(0), is(1, other(), other()), mine(2)}, []bool{true, false, true}, true},
		{"one gone", 2, []any{mine(0), mine(2)}, []bool{true, false, true}, true},
		{"one done and overwritten", 2, []any{mine(0), is(1, other(), swaps[1].Record.Op), is(2, old[2], other())}, []bool{true, true, false}, true},
		{"one done and overwritten, and one never done", 2, []any{mine(0), is(1, other(), swaps[1].Record.Op), is(2, other(), other())}, []bool{true, true, false}, true},
		{"one done and overwritten twice", 2, []any{mine(0), is(1, other(), other()), is(2, old[2], other())}, []bool{true, true, false}, true},
		{"one of two overwritten twice", 2, []any{mine(0), is(1, other(), other()), is(2, other(), other())}, nil, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := newPeer(t, ofASet, nil)
			s := p.openStore(Config{})
			before := len(p.commands("find"))
			p.answers(func(name string, body bson.Raw) bson.D {
				switch name {
				case "update":
					return bson.D{{Key: "n", Value: c.n}, {Key: "operationTime", Value: bson.Timestamp{T: 42, I: 7}}}
				case "find":
					return cursor(c.found...)
				}
				return nil
			})
			done, err := s.SwapAll(t.Context(), swaps)
			if c.done == nil {
				if !errors.Is(err, backend.ErrUnknownOutcome) {
					t.Errorf("%v, %v", done, err)
				}
			} else if err != nil || !slices.Equal(done, c.done) {
				t.Errorf("%v, %v; want %v", done, err, c.done)
			}
			asked := p.commands("find")[before:]
			if len(asked) > 1 || len(asked) == 1 != c.asks {
				t.Fatalf("it asked %d times", len(asked))
			}
			if c.asks { // after the write, on whatever member is the primary then
				if at, _, ok := asked[0].Lookup("readConcern", "afterClusterTime").TimestampOK(); !ok || at != 42 {
					t.Errorf("it asked by %v", asked[0])
				}
			}
		})
	}
}

// Many swaps go in commands that a server accepts. A failure after the first command leaves the outcome
// unknown.
func TestManySwapsAreSplitIntoCommands(t *testing.T) {
	big := testRecord("big")
	big.Card.Text = strings.Repeat("x", 5<<20)
	var swaps []claim.Swap
	for range 5 {
		swaps = append(swaps, claim.Swap{Old: claim.NewOp(), Record: big})
	}
	for range 1200 {
		swaps = append(swaps, claim.Swap{Old: claim.NewOp(), Record: testRecord("small")})
	}
	p := newPeer(t, ofASet, nil)
	s := p.openStore(Config{})
	total, failAt, commands := 0, 0, 0
	p.answers(func(name string, body bson.Raw) bson.D {
		if name != "update" {
			return nil
		}
		if commands++; commands == failAt {
			return refused(10107)
		}
		updates, _ := body.Lookup("updates").Array().Values()
		total += len(updates)
		if len(body) > 16<<20 || len(updates) > 1000 {
			t.Errorf("a command has %d bytes and %d statements", len(body), len(updates))
		}
		return bson.D{{Key: "n", Value: int32(len(updates))}}
	})
	done, err := s.SwapAll(t.Context(), swaps)
	if err != nil || len(done) != len(swaps) || slices.Contains(done, false) || total != len(swaps) {
		t.Errorf("%d of %d were sent, %v", total, len(swaps), err)
	}
	for at, kind := range map[int]error{1: backend.ErrUnavailable, 3: backend.ErrUnknownOutcome} {
		commands, failAt = 0, at
		if _, err := s.SwapAll(t.Context(), swaps); !errors.Is(err, kind) {
			t.Errorf("the failure of command %d: %v", at, err)
		}
	}
}

// Records are created by a command of their own. A failure after it leaves the outcome unknown.
func TestFailureAfterTheInsertsIsUnknown(t *testing.T) {
	p := newPeer(t, ofASet, nil)
	s := p.openStore(Config{})
	p.answers(func(name string, _ bson.Raw) bson.D {
		if name == "update" {
			return refused(10107)
		}
		return nil
	})
	made, changed := claim.Swap{Record: testRecord("a")}, claim.Swap{Old: claim.NewOp(), Record: testRecord("b")}
	for kind, swaps := range map[error][]claim.Swap{backend.ErrUnavailable: {changed}, backend.ErrUnknownOutcome: {changed, made}} {
		if _, err := s.SwapAll(t.Context(), swaps); !errors.Is(err, kind) {
			t.Errorf("of %d: %v", len(swaps), err)
		}
	}
}

func TestUnstorableValuesAreRefused(t *testing.T) {
	s := newPeer(t, ofASet, nil).openStore(Config{})
	for what, change := range map[string]func(*claim.Record){
		"a token":      func(r *claim.Record) { r.Token = math.MaxInt64 + 1 },
		"a past token": func(r *claim.Record) { r.Past = []backend.Tenure{{Token: math.MaxUint64}} },
		"no op":        func(r *claim.Record) { r.Op = claim.Op{} },
		"no name":      func(r *claim.Record) { r.Name = "" },
	} {
		r := testRecord("x")
		change(&r)
		if _, err := s.Swap(context.Background(), claim.Swap{Record: r}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.RaiseFloor(context.Background(), math.MaxInt64+1); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
	if _, err := s.List(context.Background(), "\xff", "", 1); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
	if _, err := s.List(context.Background(), "", "", 0); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

// A document that cannot have been written here is corrupt, and the error names it.
func TestCorruptDocumentsAreReported(t *testing.T) {
	s := newPeer(t, ofASet, nil).openStore(Config{})
	good, err := s.document(claim.Swap{Record: testRecord("jobs/x")})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := bson.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.found(good.ID, raw); err != nil || f.Record.Token != 3 {
		t.Fatal(f, err)
	}
	for field, values := range map[string][]any{
		"ns": {"other", nil, 1}, "name": {"jobs/y", 5}, "mode": {byStore, ""}, "holder": {7}, "token": {nil, -1, "3", 1.5, absent},
		"op":          {nil, "", strings.Repeat("0", 32), strings.Repeat("A", 32), strings.Repeat("a", 31), strings.Repeat("a", 33), strings.Repeat("g", 32), 5, absent},
		"incarnation": {"", "zz", absent}, "written": {nil, 5, absent}, "expiry": {"soon", absent}, "ttl": {-1, "x", absent},
		"pins": {"pin", bson.A{1}}, "card": {"card"}, "past": {bson.D{}, bson.A{1}, bson.A{bson.D{{Key: "token", Value: -1}}}}, "_id": {"default/jobs/y", 5},
	} {
		for _, value := range values {
			var d bson.D
			for _, e := range decode(t, raw) {
				switch {
				case e.Key != field:
					d = append(d, e)
				case !reflect.DeepEqual(value, absent):
					d = append(d, bson.E{Key: field, Value: value})
				}
			}
			bad, err := bson.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.found(good.ID, bad)
			if !errors.Is(err, backend.ErrCorrupt) || !strings.Contains(err.Error(), "jobs/x") {
				t.Errorf("%s = %v: %v", field, value, err)
			}
		}
	}
}

// absent stands for a missing field.
var absent = bson.Undefined{}

func decode(t *testing.T, raw bson.Raw) (d bson.D) {
	t.Helper()
	if err := bson.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSuccessorSortsAfterThePrefix(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "a": "b", "ns/": "ns0", "a\u007f": "a\u0080", "\ud7ff": "\ue000", "a\U0010ffff": "b", "\U0010ffff": "", "x\n": "x\v"} {
		if got := successor(prefix); got != want {
			t.Errorf("%q: %q", prefix, got)
		}
	}
}
