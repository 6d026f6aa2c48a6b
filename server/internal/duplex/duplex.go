package duplex

import (
	"context"
	"errors"
	"io"
	"sync"
)

// Flow is what the reading side and the serving side of one stream tell each other.
type Flow struct {
	wake chan struct{} // wakes the serving side when something below has changed; holds one
	room chan struct{} // wakes the reading side when something was answered; holds one
	gone chan struct{} // closed when the serving side has left

	// Mutex guards the fields below, and what the embedding type has to answer.
	sync.Mutex
	Open  int   // requests that were read and whose answer has not left
	ended bool  // nothing more will be read
	err   error // why, nil if the client has no more requests
}

// NewFlow returns the flow of a stream that begins.
func NewFlow() Flow {
	return Flow{wake: make(chan struct{}, 1), room: make(chan struct{}, 1), gone: make(chan struct{})}
}

// Close says that the serving side has left.
func (f *Flow) Close() { close(f.gone) }

// Finish says that nothing more will be read. [io.EOF] means that the client waits for what it requested.
func (f *Flow) Finish(err error) {
	f.Lock()
	defer f.Unlock()
	f.ended, f.err = true, UnlessEOF(err)
	f.Wake()
}

// Ended reports whether nothing more will be read, and why. The lock is held.
func (f *Flow) Ended() (ended bool, err error) { return f.ended, f.err }

// Sent says that the answers to n requests have left.
func (f *Flow) Sent(n int) {
	f.Lock()
	f.Open -= n
	f.Unlock()
	Notify(f.room)
}

// Wake wakes the serving side.
func (f *Flow) Wake() { Notify(f.wake) }

// Wait returns when the serving side may have something to do.
func (f *Flow) Wait(ctx context.Context) error {
	select {
	case <-f.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AwaitRoom returns when the reading side may have room. It is false if the serving side has left.
func (f *Flow) AwaitRoom() bool {
	select {
	case <-f.room:
		return true
	case <-f.gone:
		return false
	}
}

// Notify wakes the receiver of a channel of capacity one, now or when it looks next.
func Notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// UnlessEOF returns why a client is no longer read from. That it has no more to send is no error.
func UnlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
