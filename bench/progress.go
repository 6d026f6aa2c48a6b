package main

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// progress shows on a terminal what is being done, on a line that is written over; elsewhere nothing.
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

// clear leaves the line empty for what is to stay.
func (p progress) clear() { p.line("") }
