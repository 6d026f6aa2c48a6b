package console

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// onTerminal returns what a table prints on a terminal of this width.
func onTerminal(t *testing.T, columns int, color *Color, rows [][]string, looks ...Look) string {
	t.Helper()
	var out strings.Builder
	if err := PrintTable(&Stream{to: &out, columns: columns, color: color}, rows, looks...); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTableThatIsTooWideShortensItsLongestText(t *testing.T) {
	rows := [][]string{
		{"NAME", "HOLDER", "TOKEN", "NOTE"},
		{"jobs/" + strings.Repeat("n", 20), strings.Repeat("h", 60), "18446744073709551615", strings.Repeat("t", 30)},
		{"a", "b", "1", "c"},
	}
	text := onTerminal(t, 80, nil, rows, Shorten(1, 3))
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %q", n, line)
		}
	}
	for _, whole := range []string{rows[1][0], rows[1][2]} {
		if !strings.Contains(text, whole) {
			t.Errorf("the table lacks %q, which may not be shortened:\n%s", whole, text)
		}
	}
	if strings.Count(text, "…") != 2 || !strings.Contains(text, "hhhhhhhhhhhh…") || !strings.Contains(text, "tttttttttttt…") {
		t.Errorf("the two longest texts are not shortened to the same length:\n%s", text)
	}
	if got := onTerminal(t, 200, nil, rows, Shorten(1, 3)); strings.Contains(got, "…") {
		t.Errorf("a table that fits is shortened:\n%s", got)
	}
}

func TestTableKeepsEightColumnsOfEachText(t *testing.T) {
	text := onTerminal(t, 10, nil, [][]string{{strings.Repeat("a", 30), strings.Repeat("b", 30)}}, Shorten(0))
	if want := "aaaaaaa…  " + strings.Repeat("b", 30) + "\n"; text != want {
		t.Errorf("printed %q, want %q", text, want)
	}
}

func TestTableInAPipeHasAllTextAndNoColour(t *testing.T) {
	long := strings.Repeat("h", 500)
	var out strings.Builder
	err := PrintTable(NewStream(&out, new(Color)), [][]string{{"A", "B", "C"}, {long, "x\x1b[2J", ""}, {"1", "22", "333"}}, Shorten(0, 1),
		Paint(func([]string, int) Tone { return Lost }))
	pad := strings.Repeat(" ", 499)
	if want := "A" + pad + "  B         C\n" + long + "  x\\x1b[2J\n1" + pad + "  22        333\n"; err != nil || out.String() != want {
		t.Errorf("printed %q, %v; want %q", out.String(), err, want)
	}
}

func TestTableCountsColumnsOfWideText(t *testing.T) {
	text := onTerminal(t, 0, nil, [][]string{{"日本", "x"}, {"abcd", "y"}, {"e\u0301", "z"}})
	if want := "日本  x\nabcd  y\ne\u0301     z\n"; text != want {
		t.Errorf("printed %q, want %q", text, want)
	}
	if got := cut("日本語", 4); got != "日…" {
		t.Errorf("three wide letters in four columns are %q", got)
	}
}

func TestColoursAreShownWhereTheyAreWanted(t *testing.T) {
	environments := map[string]map[string]string{"": nil, "NO_COLOR": {"NO_COLOR": "1"}, "dumb": {"TERM": "dumb"}, "empty": {"NO_COLOR": ""}}
	for _, row := range []struct {
		when, environment string
		terminal, want    bool
	}{
		{"auto", "", true, true}, {"auto", "", false, false}, {"auto", "NO_COLOR", true, false}, {"auto", "dumb", true, false}, {"auto", "empty", true, true},
		{"always", "", false, true}, {"always", "NO_COLOR", true, true}, {"always", "dumb", true, true},
		{"never", "", true, false}, {"never", "", false, false},
	} {
		var c Color
		c.Obey(func(name string) string { return environments[row.environment][name] })
		if err := c.Set(row.when); err != nil {
			t.Fatal(err)
		}
		if got := c.allows(row.terminal); got != row.want {
			t.Errorf("--color=%s, environment %q, terminal %t: colours %t", row.when, row.environment, row.terminal, got)
		}
	}
	if err := new(Color).Set("sometimes"); err == nil {
		t.Error("--color=sometimes is accepted")
	}
	if (*Color)(nil).allows(true) || !new(Color).allows(true) {
		t.Error("no Color allows colours, or the zero Color is not auto")
	}
}

func TestColourTakesNoColumns(t *testing.T) {
	always := &Color{when: colorAlways}
	tone := func(row []string, column int) Tone {
		return map[string]Tone{"up": Held, "down": Lost}[row[column]]
	}
	text := onTerminal(t, 0, always, [][]string{{"up", "x"}, {"down", "y"}}, Paint(tone))
	if want := "\x1b[32mup\x1b[0m    x\n\x1b[31mdown\x1b[0m  y\n"; text != want {
		t.Errorf("printed %q, want %q", text, want)
	}
}

func ExamplePrintTable() {
	var out strings.Builder
	_ = PrintTable(&out, [][]string{{"NAME", "TOKEN"}, {"jobs/nightly", "7"}})
	fmt.Print(out.String())
	// Output:
	// NAME          TOKEN
	// jobs/nightly  7
}
