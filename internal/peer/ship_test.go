package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// pattern returns a state in which every part is different.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// ship sends a state, and checks that it arrives unchanged.
func ship(t *testing.T, from, to *member, size int) error {
	t.Helper()
	want := pattern(size)
	to.receive = func(_ context.Context, member, incarnation uint64, frame []byte, state io.Reader) error {
		got, err := io.ReadAll(state)
		if err != nil || !bytes.Equal(got, want) || string(frame) != "frame" || member != from.cfg.Self || incarnation != from.cfg.Incarnation {
			t.Errorf("got %d bytes and %q of %x (%x): %v", len(got), frame, member, incarnation, err)
		}
		return nil
	}
	return from.Ship(within(t), to.cfg.Self, []byte("frame"), bytes.NewReader(want))
}

func TestStateIsShippedWhole(t *testing.T) {
	a, b := pair(t, nil)
	for _, size := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 5<<20 + 3} {
		if err := ship(t, a, b, size); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// endless is a state without an end, until it fails.
type endless struct{ err func() error }

func (e *endless) Read(p []byte) (int, error) {
	if err := e.err(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func never() error { return nil }

func TestReceiverErrorIsReturnedToSender(t *testing.T) {
	a, b := pair(t, nil)
	for name, read := range map[string]int64{"at once": 0, "in between": 3 << 20} {
		b.receive = func(_ context.Context, _, _ uint64, _ []byte, state io.Reader) error {
			io.CopyN(io.Discard, state, read)
			return errors.New("the disk is full")
		}
		err := a.Ship(within(t), 2, nil, &endless{never})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ship(t, a, b, 1<<20); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestUnreadableStateIsNotReceivedAsWhole(t *testing.T) {
	a, b := pair(t, nil)
	begun, ended := make(chan struct{}), make(chan error, 1)
	b.receive = func(_ context.Context, _, _ uint64, _ []byte, state io.Reader) error {
		close(begun)
		_, err := io.Copy(io.Discard, state)
		ended <- err
		return nil
	}
	broken := errors.New("the file is gone")
	reads := 0
	err := a.Ship(within(t), 2, nil, &endless{func() error {
		if reads++; reads > 3 {
			<-begun
			return broken
		}
		return nil
	}})
	if !errors.Is(err, broken) || errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the receiver took it for the whole state")
	}
}

func TestCancelledStateIsNotReceivedAsWhole(t *testing.T) {
	a, b := pair(t, nil)
	begun, ended := make(chan struct{}), make(chan error, 1)
	b.receive = func(ctx context.Context, _, _ uint64, _ []byte, state io.Reader) error {
		close(begun)
		_, err := io.Copy(io.Discard, state)
		<-ctx.Done()
		ended <- err
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no use any more")
	go func() {
		<-begun
		cancel(why)
	}()
	if err := a.Ship(ctx, 2, nil, &endless{never}); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the receiver took it for the whole state")
	}
}

func TestOutcomeIsUnknownIfReceiverIsLostAfterWholeState(t *testing.T) {
	for name, c := range map[string]struct {
		whole bool
		want  error
	}{"before the end": {false, ErrUnreachable}, "before its answer": {true, ErrUnknownOutcome}} {
		t.Run(name, func(t *testing.T) {
			g := newCluster(t, 1, 2)
			p := g.behind(2)
			a := g.start(1, nil)
			b := g.start(2, func(_ *Config, b *member) {
				b.receive = func(_ context.Context, _, _ uint64, _ []byte, state io.Reader) error {
					if c.whole {
						io.Copy(io.Discard, state)
						p.set(func() { p.back = true })
					} else {
						io.CopyN(io.Discard, state, 1<<20)
					}
					p.reset()
					return nil
				}
			})
			a.awaitConnected(2)
			state := io.Reader(&endless{never})
			if c.whole {
				state = bytes.NewReader(pattern(1 << 20))
			}
			if err := a.Ship(within(t), 2, nil, state); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			p.resume()
			a.awaitConnected(2)
			_ = b
		})
	}
}

func TestNewerStateReplacesOlderOne(t *testing.T) {
	a, b := pair(t, nil)
	begun := make(chan struct{})
	running := make(chan struct{}, 1)
	b.receive = func(_ context.Context, _, _ uint64, frame []byte, state io.Reader) error {
		select {
		case running <- struct{}{}:
		default:
			t.Error("two states are received at a time")
		}
		if string(frame) == "old" {
			close(begun)
		}
		_, err := io.Copy(io.Discard, state)
		<-running
		return err
	}
	// The older transfer stalls: its state does not arrive.
	stalled, stop := io.Pipe()
	old := make(chan error, 1)
	go func() { old <- a.Ship(within(t), 2, []byte("old"), stalled) }()
	go stop.Write(make([]byte, chunkSize))
	<-begun
	if err := a.Ship(within(t), 2, []byte("new"), strings.NewReader("state")); err != nil {
		t.Errorf("the newer: %v", err)
	}
	go func() { // the older transfer ends when its state is read further
		stop.Write(make([]byte, 4*chunkSize))
		stop.Close()
	}()
	if err := <-old; !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "again") {
		t.Errorf("the older: %v", err)
	}
	stalled.Close()
}

func TestShipToUnreachableMemberFails(t *testing.T) {
	g := newCluster(t, 1, 2)
	g.listeners[2].Close()
	a := g.start(1, nil)
	for _, to := range []uint64{1, 2, 9} {
		if err := a.Ship(within(t), to, nil, strings.NewReader("")); !errors.Is(err, ErrUnreachable) {
			t.Errorf("to %x: %v", to, err)
		}
	}
	a.stop()
	if err := a.Ship(within(t), 2, nil, strings.NewReader("")); !errors.Is(err, ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestCloseEndsShipping(t *testing.T) {
	a, b := pair(t, nil)
	begun, ended := make(chan struct{}, 2), make(chan error, 2)
	for _, m := range []*member{a, b} {
		m.receive = func(_ context.Context, _, _ uint64, _ []byte, state io.Reader) error {
			begun <- struct{}{}
			_, err := io.Copy(io.Discard, state)
			ended <- err
			return err
		}
	}
	results := make(chan error, 2)
	go func() { results <- a.Ship(within(t), 2, nil, &endless{never}) }()
	go func() { results <- b.Ship(within(t), 1, nil, &endless{never}) }()
	<-begun
	<-begun
	a.stop() // the sender and, in the other case, the receiver
	for range 2 {
		if err := <-results; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnreachable) {
			t.Errorf("the sender got %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("a receiver took it for the whole state")
		}
	}
}
