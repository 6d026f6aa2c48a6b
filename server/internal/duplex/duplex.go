package duplex

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Flow is the state that the reading side and the serving side of one stream share.
type Flow struct {
	wake chan struct{} // wakes the serving side after a change below; capacity 1
	room chan struct{} // wakes the reading side after an answer was sent; capacity 1
	gone chan struct{} // closed when the serving side has ended

	// Mutex guards the fields below, and the pending answers of the embedding type.
	sync.Mutex
	Open  int   // requests that were read and whose answers were not sent
	ended bool  // reading has ended
	err   error // why it ended; nil if the client has no more requests
}

// NewFlow returns the flow of a new stream.
func NewFlow() Flow {
	return Flow{wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{})}
}

// Close ends the serving side, and lets the reading side stop waiting.
func (f *Flow) Close() { close(f.gone) }

// Finish ends the reading side. [io.EOF] means that the client has sent everything and waits for the answers.
func (f *Flow) Finish(err error) {
	f.Lock()
	defer f.Unlock()
	f.ended, f.err = true, UnlessEOF(err)
	f.Wake()
}

// Ended reports whether reading has ended, and why. The caller holds the lock.
func (f *Flow) Ended() (ended bool, err error) { return f.ended, f.err }

// Sent counts the answers to n requests as sent.
func (f *Flow) Sent(n int) {
	f.Lock()
	f.Open -= n
	f.Unlock()
	Notify(f.room)
}

// Wake wakes the serving side.
func (f *Flow) Wake() { Notify(f.wake) }

// Wait returns when the serving side may have work, or when ctx ends.
func (f *Flow) Wait(ctx context.Context) error {
	select {
	case <-f.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AwaitRoom returns true when the reading side may have room for a request. It returns false when the serving side has
// ended.
func (f *Flow) AwaitRoom() bool {
	select {
	case <-f.room:
		return true
	case <-f.gone:
		return false
	}
}

// Notify wakes the receiver of a channel of capacity 1. It never blocks.
func Notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// UnlessEOF returns nil for [io.EOF], which means that a client has no more to send. It returns any other error
// unchanged.
func UnlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
