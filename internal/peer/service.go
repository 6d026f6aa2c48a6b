package peer

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
)

// service implements the service that this member offers to the others.
type service struct {
	peerpb.UnimplementedPeerServer
	t *Transport
}

// inbound is the state of one member's streams to this one.
type inbound struct {
	urgent, bulk slot
	states       slot
	shipping     chan struct{} // capacity one; full during ReceiveState
}

// slot holds the one stream of its kind that a member may have. A newer stream replaces an older one, which may be
// dead without anyone having noticed.
type slot struct {
	mu      sync.Mutex
	current *occupant
}

type occupant struct{ end context.CancelCauseFunc }

var errReplaced = status.Error(codes.Aborted, "the member has opened this stream again")

// enter puts a stream into the slot. The caller must call leave.
func (n *slot) enter(end context.CancelCauseFunc) (v *occupant, leave func()) {
	v = &occupant{end}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil {
		n.current.end(errReplaced)
	}
	n.current = v
	return v, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.current == v {
			n.current = nil
		}
	}
}

// during runs do, unless another stream has replaced v.
func (n *slot) during(v *occupant, do func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != v {
		return errReplaced
	}
	do()
	return nil
}

func (n *slot) taken() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.current != nil
}

func (i *inbound) listening() bool { return i.urgent.taken() && i.bulk.taken() }

type frameServer = grpc.BidiStreamingServer[peerpb.Batch, peerpb.Echo]

// Urgent implements [peerpb.PeerServer].
func (s *service) Urgent(stream frameServer) error {
	from := callerOf(stream.Context())
	return s.take(stream, from, &from.in.urgent)
}

// Bulk implements [peerpb.PeerServer].
func (s *service) Bulk(stream frameServer) error {
	from := callerOf(stream.Context())
	return s.take(stream, from, &from.in.bulk)
}

func callerOf(ctx context.Context) caller { return ctx.Value(callerKey{}).(caller) }

// errClosing ends the streams of other members when the transport is closed.
var errClosing = status.Error(codes.Unavailable, "this member is shutting down")

// enter begins a stream of another member. The stream ends when a newer one replaces it or the transport is closed.
func (s *service) enter(stream grpc.ServerStream, n *slot) (ctx context.Context, v *occupant, leave func()) {
	ctx, end := context.WithCancelCause(stream.Context())
	closing := context.AfterFunc(s.t.ctx, func() { end(errClosing) })
	v, vacate := n.enter(end)
	return ctx, v, func() {
		vacate()
		closing()
		end(nil)
	}
}

func (s *service) take(stream frameServer, from caller, n *slot) error {
	ctx, v, leave := s.enter(stream, n)
	defer leave()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	if s.t.cfg.Connected != nil {
		s.t.cfg.Connected(from.member, from.incarnation)
	}
	batches := newReceiver[peerpb.Batch](ctx)
	s.t.serving.Go(func() { batches.pump(stream.Recv) })
	for {
		batch, err := batches.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = n.during(v, func() {
			for _, frame := range batch.Frames {
				s.t.cfg.Receive(from.member, from.incarnation, frame)
			}
		})
		if err != nil {
			return err
		}
		if batch.Ping == 0 {
			continue
		}
		if err := stream.Send(&peerpb.Echo{Ping: batch.Ping}); err != nil {
			return err
		}
	}
}

// Ship implements [peerpb.PeerServer].
func (s *service) Ship(stream grpc.ClientStreamingServer[peerpb.Chunk, peerpb.Shipped]) error {
	from := callerOf(stream.Context())
	in := from.in
	ctx, _, leave := s.enter(stream, &in.states)
	defer leave()
	select {
	case in.shipping <- struct{}{}: // the previous call is ending
		defer func() { <-in.shipping }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	chunks := newReceiver[peerpb.Chunk](ctx)
	s.t.serving.Go(func() { chunks.pump(stream.Recv) })
	first, err := chunks.next()
	if err != nil {
		return err
	}
	state := &stateReader{chunks: chunks, rest: first.State, last: first.Last}
	if err := s.t.cfg.ReceiveState(ctx, from.member, from.incarnation, first.Frame, state); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return status.Error(codes.Aborted, err.Error())
	}
	return stream.SendAndClose(&peerpb.Shipped{})
}

// receiver receives the messages of a stream on a goroutine of its own, because receiving only ends with the stream,
// and the handler may have to end before. The stream ends with the handler.
type receiver[T any] struct {
	ctx      context.Context
	messages chan *T
	failed   chan error // capacity one: the error after the last message
}

func newReceiver[T any](ctx context.Context) *receiver[T] {
	return &receiver[T]{ctx, make(chan *T), make(chan error, 1)}
}

func (r *receiver[T]) pump(receive func() (*T, error)) {
	for {
		message, err := receive()
		if err != nil {
			r.failed <- err
			return
		}
		select {
		case r.messages <- message:
		case <-r.ctx.Done():
			return
		}
	}
}

// next returns the next message, or the error that ended the stream.
func (r *receiver[T]) next() (*T, error) {
	select {
	case message := <-r.messages:
		return message, nil
	case err := <-r.failed:
		r.failed <- err // for the next call
		return nil, err
	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	}
}

// stateReader reads a state from its chunks.
type stateReader struct {
	chunks *receiver[peerpb.Chunk]
	rest   []byte
	last   bool // rest is the end of the state
}

// Read implements [io.Reader]. It returns io.EOF only when the state is complete.
func (r *stateReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.last {
			return 0, io.EOF
		}
		chunk, err := r.chunks.next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		r.rest, r.last = chunk.State, chunk.Last
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
