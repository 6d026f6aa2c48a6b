package console

import (
	"strings"
	"testing"
)

func TestPageOfALiveViewFitsTheWindow(t *testing.T) {
	var out strings.Builder
	p := &page{stream: &Stream{to: &out}, columns: 10, lines: 4}
	if err := p.show("a title that is long", "one\ntwo\nthree\nfour\n"); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[H\x1b[Ka title t…\r\n\x1b[Kone\r\n\x1b[Ktwo\r\n\x1b[K… 2 more …"; out.String() != want {
		t.Errorf("the window receives %q, want %q", out.String(), want)
	}
	out.Reset()
	p.lines = 10
	if err := p.show("t", "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[H\x1b[Kt\r\n\x1b[Kone\r\n\x1b[Ktwo\r\n\x1b[J"; out.String() != want {
		t.Errorf("the window receives %q, want %q", out.String(), want)
	}
}

func TestLineWithTonesIsCutByItsColumns(t *testing.T) {
	line := "ab" + Held.in("cdef") + "ghij"
	for most, want := range map[int]string{
		10: line,
		8:  "ab\x1b[32mcdef\x1b[0mg…\x1b[0m",
		4:  "ab\x1b[32mc…\x1b[0m",
	} {
		if got := cutPainted(line, most); got != want {
			t.Errorf("in %d columns it is %q, want %q", most, got, want)
		}
	}
}

func TestLiveViewNeedsATerminal(t *testing.T) {
	var out strings.Builder
	w := &Stream{to: &out, columns: 5}
	if CanShow(w) || CanShow(&out) {
		t.Error("a live view can be shown where there is no terminal")
	}
}
