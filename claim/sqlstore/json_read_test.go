package sqlstore

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// readByTheStandardPackage returns what package encoding/json reads in a text of tenures.
func readByTheStandardPackage(text string) (list []backend.Tenure, err error) {
	var all []tenure
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, err
	}
	for _, p := range all {
		list = append(list, backend.Tenure{Token: p.Token, Holder: backend.Holder{ID: p.Holder, Card: p.Card.card()},
			From: fromTime(p.From), To: fromTime(p.To), Why: backend.Reason(p.Why), Note: p.Note})
	}
	return list, nil
}

// drawPlainTenure draws a tenure whose texts need no escapes.
func drawPlainTenure(t *rapid.T) backend.Tenure {
	text := rapid.StringMatching(`[ !#-\[\]-~]{0,12}`)
	p := backend.Tenure{Token: backend.Token(rapid.Uint64Range(0, 1<<63-1).Draw(t, "token")), From: drawTime(t, "from"), To: drawTime(t, "to"),
		Why: backend.Reason(text.Draw(t, "why")), Note: text.Draw(t, "note")}
	p.Holder.ID = text.Draw(t, "id")
	p.Holder.Card = backend.Card{Host: text.Draw(t, "host"), PID: rapid.IntRange(0, 1<<31-1).Draw(t, "pid"), Started: drawTime(t, "started"), Text: text.Draw(t, "text")}
	return p
}

// The reader of this package reads all plain text that the package writes, as package encoding/json does.
func TestPlainTenuresAreReadWithoutTheStandardPackage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var past []backend.Tenure
		for range rapid.IntRange(1, claim.MaxPast).Draw(t, "tenures") {
			past = append(past, drawPlainTenure(t))
		}
		text := pastText(past)
		got, ok := readTenures(text)
		want, err := readByTheStandardPackage(text)
		if !ok || err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is read as %+v, %v; want %+v, %v", text, got, ok, want, err)
		}
		if card := cardText(past[0].Holder.Card); card != "" {
			if c, ok := readCard(card); !ok || !reflect.DeepEqual(c, want[0].Holder.Card) {
				t.Fatalf("%s is read as %+v, %v", card, c, ok)
			}
		}
	})
}

// Text that is damaged, or that another program wrote, is read as package encoding/json reads it, or left to that package.
func TestOddTenuresAreReadAsByTheStandardPackage(t *testing.T) {
	pieces := []string{`{`, `}`, `[`, `]`, `,`, `"`, `:`, `\\`, `0`, `-`, `01`, `1e3`, ` `, `null`, `"token":1`, `"card":{}`, `"card":{"pid":1}`, `é`, `"2026-11-27T01:36:03,5Z"`, `"holder":"x"`}
	rapid.Check(t, func(t *rapid.T) {
		text := pastText([]backend.Tenure{drawPlainTenure(t), drawPlainTenure(t)})
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			from := rapid.IntRange(0, len(text)).Draw(t, "from")
			to := rapid.IntRange(from, min(len(text), from+rapid.SampledFrom([]int{0, 1, 2, 40}).Draw(t, "length"))).Draw(t, "to")
			text = text[:from] + rapid.SampledFrom(append(pieces, "")).Draw(t, "piece") + text[to:]
		}
		got, ok := readTenures(text)
		if !ok {
			return
		}
		if want, err := readByTheStandardPackage(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is read as %+v; want %+v, %v", text, got, want, err)
		}
	})
}

func BenchmarkReadTenures(b *testing.B) {
	at := time.Date(2026, 11, 27, 1, 36, 3, 123456789, time.UTC)
	p := backend.Tenure{Token: 4711, Holder: backend.Holder{ID: "web-1", Card: backend.Card{Host: "web-1", PID: 4711, Started: at}}, From: at, To: at, Why: backend.Released}
	past := slices.Repeat([]backend.Tenure{p}, claim.MaxPast)
	text := pastText(past)
	b.Run("here", func(b *testing.B) {
		for b.Loop() {
			if _, ok := readTenures(text); !ok {
				b.Fatal(text)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			if _, err := readByTheStandardPackage(text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
