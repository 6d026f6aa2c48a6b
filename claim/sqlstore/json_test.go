package sqlstore

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// drawTime draws the zero time, or one in any zone.
func drawTime(t *rapid.T, label string) time.Time {
	if rapid.Bool().Draw(t, label+" is none") {
		return time.Time{}
	}
	at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, label+" ns"))
	return at.In(time.FixedZone("", rapid.IntRange(-12, 12).Draw(t, label+" zone")*3600))
}

func drawCard(t *rapid.T) backend.Card {
	text := rapid.OneOf(rapid.Just(""), rapid.String())
	return backend.Card{Host: text.Draw(t, "host"), PID: rapid.IntRange(-1, 2).Draw(t, "pid"), Started: drawTime(t, "started"), Text: text.Draw(t, "text")}
}

// The text equals that of package encoding/json, and a read returns what was written. The remembered meaning of
// a text is what a read would return.
func TestJSONEqualsThatOfTheStandardPackage(t *testing.T) {
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"<a&b>", "\"\\\n\x00\x1f\x7f", "\u2028é\u2029", "世界 😀"}))
	rapid.Check(t, func(t *rapid.T) {
		r := some
		r.Op, r.Card = claim.NewOp(), drawCard(t)
		for range rapid.IntRange(0, 3).Draw(t, "tenures") {
			r.Past = append(r.Past, backend.Tenure{Token: backend.Token(rapid.Uint64().Draw(t, "token")), Holder: backend.Holder{ID: text.Draw(t, "id"), Card: drawCard(t)},
				From: drawTime(t, "from"), To: drawTime(t, "to"), Why: backend.Reason(text.Draw(t, "why")), Note: text.Draw(t, "note")})
		}
		values, err := row(nil, &r, false, true)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, "", pastText(r.Past))
		for i, to := range map[int]any{10: &card{}, 16: &[]tenure{}} { // order: each case is independent
			is := values[i].(string)
			if is == "" {
				continue
			}
			if err := json.Unmarshal([]byte(is), to); err != nil {
				t.Fatalf("%s: %v", is, err)
			}
			var should strings.Builder
			encoder := json.NewEncoder(&should)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(to); err != nil || strings.TrimSpace(should.String()) != is {
				t.Fatalf("got %s, want %s, %v", is, should.String(), err)
			}
		}
		read := append(append([]any{r.Name}, values...), int64(0), "writer", int64(0))
		m := &pastCache{}
		for range 2 { // read, and remembered
			f, _, err := found(read, m)
			want := asRead(r.Past)
			if err != nil || f.Err != nil || len(f.Record.Past) != len(want) || len(want) > 0 && !reflect.DeepEqual(f.Record.Past, want) ||
				!f.Record.Card.Started.Equal(r.Card.Started) || f.Record.Card.Text != r.Card.Text || f.Record.Card.Host != r.Card.Host || f.Record.Card.PID != r.Card.PID {
				t.Fatalf("%+v is read as %+v, %v, %v", r, f.Record, err, f.Err)
			}
		}
	})
}
