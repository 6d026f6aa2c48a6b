package main

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// progress shows the present step on one line of a terminal. It prints nothing elsewhere.
type progress struct{ to *os.File }

func newProgress(f *os.File) progress {
	if !term.IsTerminal(int(f.Fd())) {
		return progress{}
	}
	return progress{f}
}

const eraseLine = "\r\x1b[K"

func (p progress) line(format string, args ...any) {
	if p.to != nil {
		fmt.Fprintf(p.to, eraseLine+format, args...)
	}
}

// clear empties the line, for lasting output.
func (p progress) clear() { p.line("") }
