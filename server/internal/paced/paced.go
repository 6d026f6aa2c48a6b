package paced

import (
	"context"
	"net/http"
	"time"
)

const (
	// PieceLimit is the time that a client has to read a piece, and pieceBytes the size of a piece.
	PieceLimit = 30 * time.Second
	pieceBytes = 64 << 10
	// StopLimit is that time from the stop of the server on.
	StopLimit = time.Second
)

// Writer is the writer of an answer that lasts as long as its client reads. It is for one goroutine, as every
// [http.ResponseWriter].
type Writer struct {
	http.ResponseWriter
	control *http.ResponseController
	serving context.Context // ends with the stop of the server
}

// NewWriter returns a writer on w. serving ends when the server stops. The caller calls end before its handler returns: end
// begins the time for what net/http still has to send.
func NewWriter(w http.ResponseWriter, serving context.Context) (p *Writer, end func()) {
	p = &Writer{w, http.NewResponseController(w), serving}
	begun := make(chan struct{})
	stop := context.AfterFunc(serving, func() { // for a write under way
		defer close(begun)
		_ = p.begin() // fails if the client has gone
	})
	return p, func() {
		if !stop() {
			<-begun
		}
		_ = p.begin()
	}
}

// Unwrap serves [http.ResponseController].
func (p *Writer) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements [http.ResponseWriter].
func (p *Writer) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		piece := b[:min(len(b), pieceBytes)]
		if err = p.begin(); err == nil {
			var written int
			written, err = p.ResponseWriter.Write(piece)
			n, b = n+written, b[written:]
		}
	}
	return n, err
}

// FlushError serves [http.ResponseController]. After it the answer may pause for as long as the server wants.
func (p *Writer) FlushError() error {
	if err := p.begin(); err != nil {
		return err
	}
	if err := p.control.Flush(); err != nil {
		return err
	}
	return p.control.SetWriteDeadline(time.Time{})
}

// Flush implements [http.Flusher].
func (p *Writer) Flush() { _ = p.FlushError() } // the next write reports the error

// begin begins the time for one piece.
func (p *Writer) begin() error {
	err := p.control.SetWriteDeadline(time.Now().Add(PieceLimit))
	if p.serving.Err() != nil { // looked at afterwards, so that a stop at the same time is not lost
		err = p.control.SetWriteDeadline(time.Now().Add(StopLimit))
	}
	return err
}
