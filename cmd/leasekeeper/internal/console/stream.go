package console

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Stream is an output of the program, such as standard output. A table on a stream fits its terminal, and has colours where
// [Color] allows them. The zero Color and a writer that is no terminal make a stream that changes nothing.
//
// A stream belongs to one goroutine.
type Stream struct {
	to       io.Writer
	terminal *os.File // nil if to is no terminal
	color    *Color   // nil for no colours
	columns  int      // the width of a page of a live view; 0 for the width of the terminal
}

// NewStream returns the stream that writes to w. The caller may change color until the first write.
func NewStream(w io.Writer, color *Color) *Stream {
	s := &Stream{to: w, color: color}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.terminal = f
	}
	return s
}

// Write implements [io.Writer]. It writes the bytes as they are.
func (s *Stream) Write(p []byte) (int, error) { return s.to.Write(p) }

// IsTerminal reports whether the stream goes to a terminal.
func (s *Stream) IsTerminal() bool { return s.terminal != nil }

// width returns how many columns a line may have, or 0 for no limit.
func (s *Stream) width() int {
	if s.columns > 0 || s.terminal == nil {
		return s.columns
	}
	columns, _, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// paints reports whether the stream shows colours.
func (s *Stream) paints() bool {
	return s.color.allows(s.terminal != nil) && (s.terminal == nil || obeysEscapes(s.terminal))
}

// streamOf returns w as a stream.
func streamOf(w io.Writer) *Stream {
	if s, ok := w.(*Stream); ok {
		return s
	}
	return NewStream(w, nil)
}
