package peer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
)

// chunkSize is the size of the parts in which a state is sent.
const chunkSize = 256 << 10

var (
	// ErrUnreachable means that a member could not be reached, or was lost before it could have taken the whole state.
	ErrUnreachable = errors.New("the member cannot be reached")
	// ErrRefused means that the member was reached and has not taken the state.
	ErrRefused = errors.New("the member has refused the state")
	// ErrUnknownOutcome means that the connection was lost when the member had, or may have had, the whole state.
	ErrUnknownOutcome = errors.New("it is not known whether the member has taken the state")
	// ErrClosed means that the transport was closed.
	ErrClosed = errors.New("the connections between members are closed")
)

// Ship sends a frame and its state to a member. It reads state to its end, and waits until the member has taken both.
func (t *Transport) Ship(ctx context.Context, to uint64, frame []byte, state io.Reader) error {
	l := t.link(to)
	if l == nil {
		return fmt.Errorf("%w: %x is not another member of the cluster", ErrUnreachable, to)
	}
	if len(frame) > t.cfg.MaxFrame {
		return fmt.Errorf("peer: a frame of %d bytes is larger than %d", len(frame), t.cfg.MaxFrame)
	}
	if !t.ships(true) {
		return ErrClosed
	}
	defer t.ships(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(ErrClosed) })()
	whole, err := l.ship(ctx, frame, state)
	if err == nil {
		return nil
	}
	return l.shipError(ctx, whole, err)
}

// readError is an error of the state's reader.
type readError struct{ error }

func (r *readError) Unwrap() error { return r.error }

// ship sends a frame and its state. With an error it reports whether the whole state had been sent.
func (l *link) ship(ctx context.Context, frame []byte, state io.Reader) (whole bool, err error) {
	stream, err := l.client.Ship(ctx)
	if err != nil {
		return false, err
	}
	chunk := &peerpb.Chunk{Frame: frame}
	for !whole {
		// Not reused, because the stream may still read it later.
		piece := make([]byte, chunkSize)
		n, err := io.ReadFull(state, piece)
		whole = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !whole {
			return false, &readError{err}
		}
		chunk.State, chunk.Last = piece[:n], whole
		if err := stream.Send(chunk); err != nil {
			_, err = stream.CloseAndRecv() // returns the reason
			return whole, err
		}
		chunk = new(peerpb.Chunk)
	}
	_, err = stream.CloseAndRecv()
	return true, err
}

// shipError returns the error for the end of a stream.
func (l *link) shipError(ctx context.Context, whole bool, err error) error {
	if read := (*readError)(nil); errors.As(err, &read) {
		return fmt.Errorf("peer: the state for the member %x cannot be read: %w", l.member, read.error)
	}
	s := status.Convert(err)
	kind := ErrUnreachable
	cause := context.Cause(ctx)
	switch {
	case s.Code() == codes.Aborted || s.Code() == codes.FailedPrecondition:
		return fmt.Errorf("%w (%x): %s", ErrRefused, l.member, s.Message())
	case whole:
		kind = ErrUnknownOutcome
	case cause != nil:
		return cause
	}
	if cause != nil {
		return fmt.Errorf("%w (%x): %w", kind, l.member, cause)
	}
	return fmt.Errorf("%w (%x): %w", kind, l.member, l.explain(err))
}
