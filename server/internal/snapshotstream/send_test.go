package snapshotstream

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// fixed is a snapshot of size bytes.
type fixed struct {
	size   int
	closed bool
}

func (f *fixed) Size() int64 { return int64(f.size) }

func (f *fixed) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, bytes.NewReader(make([]byte, f.size)))
}

func (f *fixed) Close() error {
	f.closed = true
	return nil
}

func TestSnapshotOfAStalledClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := make(chan struct{}) // the handler has returned
		defer close(returned)
		f := &fixed{size: 3 * partSize}
		err := Send(t.Context(), slog.New(slog.DiscardHandler), func(context.Context) (*fixed, error) { return f, nil }, func(p Part) error {
			if p.Left < partSize {
				select {
				case <-returned:
				case <-time.After(time.Hour):
				}
			}
			return nil
		})
		if err != errStalled || !f.closed {
			t.Errorf("a client that stalls: %v, closed: %t", err, f.closed)
		}
	})
}

func TestSlowClientReceivesTheWholeSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixed{size: 3*partSize + 1}
		received := 0
		err := Send(t.Context(), slog.New(slog.DiscardHandler), func(context.Context) (*fixed, error) { return f, nil }, func(p Part) error {
			time.Sleep(partLimit - 1)
			received += len(p.Data)
			return nil
		})
		if err != nil || received != f.size || !f.closed {
			t.Errorf("%d bytes of %d, %v, closed: %t", received, f.size, err, f.closed)
		}
	})
}
