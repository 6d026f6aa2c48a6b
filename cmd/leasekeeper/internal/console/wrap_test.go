package console

import (
	"strings"
	"testing"
)

func TestWrappingKeepsEveryWord(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"a bc", []string{"a bc"}},
		{"abcd efgh", []string{"abcd", "efgh"}},
		{"ab abcdefghijk z", []string{"ab", "abcde", "fghij", "k z"}},
		{"abcdefghij", []string{"abcde", "fghij"}},
		{"日本語 x", []string{"日本", "語 x"}},
	} {
		if got := WrapText(c.text, 5); strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("%q: %q", c.text, got)
		}
	}
}

func TestTableBreaksTheTextOfItsLastColumn(t *testing.T) {
	always := &Color{when: colorAlways}
	tone := func(row []string, column int) Tone {
		if column == 1 && row[0] == "pause" {
			return Alert
		}
		return Plain
	}
	rows := [][]string{{"ttl", "15s"}, {"pause", "how long\x1b a pause costs no lease"}}
	text := onTerminal(t, 20, always, rows, Wrap(), Paint(tone))
	want := "ttl    15s\npause  \x1b[33mhow long\\x1b\x1b[0m\n       \x1b[33ma pause costs\x1b[0m\n       \x1b[33mno lease\x1b[0m\n"
	if text != want {
		t.Errorf("printed %q, want %q", text, want)
	}
	if text := onTerminal(t, 0, nil, rows, Wrap()); text != "ttl    15s\npause  how long\\x1b a pause costs no lease\n" {
		t.Errorf("without a limit it printed %q", text)
	}
	if text := onTerminal(t, 10, nil, rows[1:], Wrap()); !strings.HasPrefix(text, "pause  how\n       long\\x1b\n") {
		t.Errorf("a last column of less than %d columns is %q", shortest, text)
	}
}

func TestTableShortensWhatBreakingItsLastColumnDoesNotSave(t *testing.T) {
	text := onTerminal(t, 22, nil, [][]string{{strings.Repeat("h", 30), "a b c d e f g h"}}, Shorten(0), Wrap())
	if want := "hhhhhhhhhhh…  a b c d\n              e f g h\n"; text != want {
		t.Errorf("printed %q, want %q", text, want)
	}
}
