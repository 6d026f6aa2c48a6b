package console

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// progressInterval is how often a line of progress changes at most.
const progressInterval = 100 * time.Millisecond

// Progress is one line on a terminal that shows how far a long operation is.
type Progress struct {
	terminal *Stream   // nil if there is none: then nothing is shown
	shown    time.Time // when the line was last written
	width    int       // columns of the longest text so far
}

// NewProgress returns a line on w, which shows nothing if w is no terminal.
func NewProgress(w io.Writer) *Progress {
	s := streamOf(w)
	if !s.IsTerminal() {
		return &Progress{}
	}
	return &Progress{terminal: s}
}

// Show replaces the text of the line, if it was not replaced a moment ago.
func (p *Progress) Show(format string, args ...any) {
	if p.terminal == nil || time.Since(p.shown) < progressInterval {
		return
	}
	p.shown = time.Now()
	text := backend.Printable(fmt.Sprintf(format, args...))
	if most := p.terminal.width(); most > 0 {
		text = cut(text, most-1) // a full line would make the terminal scroll
	}
	columns := columnsOf(text)
	fmt.Fprintf(p.terminal, "\r%s%s", text, strings.Repeat(" ", max(0, p.width-columns)))
	p.width = max(p.width, columns)
}

// Clear removes the line.
func (p *Progress) Clear() {
	if p.width > 0 {
		fmt.Fprintf(p.terminal, "\r%-*s\r", p.width, "")
	}
}
