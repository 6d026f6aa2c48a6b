package remote

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// mux sends the requests of many callers to one endpoint over one stream. If that stream ends, the next request opens
// another one. R is one request, a pointer.
type mux[R any] struct {
	endpoints *endpoints.Set[*endpoint]
	// newProtocol returns the protocol for a new stream.
	newProtocol func(*muxStream[R]) protocol[R]

	mu     sync.Mutex
	stream *muxStream[R] // takes new requests; nil if there is none
}

// protocol is what one stream does with its requests. It belongs to that stream. The methods admit, answer, lost and fail run
// with the stream's lock held.
type protocol[R any] interface {
	// open opens the gRPC stream.
	open(ctx context.Context) error
	// admit notes that the stream has taken a request.
	admit(r R)
	// fill makes the next message of unsent requests. It reports whether there is anything to send.
	fill() bool
	// send sends that message.
	send() error
	// receive waits for a message of answers.
	receive() error
	// answer delivers the answers in that message.
	answer()
	// lost notes that the stream has ended. It returns the error for the requests that are not answered.
	lost(err error) error
	// fail delivers that error to one request.
	fail(r R, err error)
}

// muxStream is one stream. One goroutine sends requests, several in one message if they come fast, and another one delivers
// the answers.
type muxStream[R any] struct {
	mux      *mux[R]
	protocol protocol[R]
	ctx      context.Context
	cancel   context.CancelCauseFunc
	wake     chan struct{} // signals that there is something to send; holds one signal

	mu     sync.Mutex
	last   uint64       // the number of the newest request
	unsent []R          // oldest first
	asked  map[uint64]R // requests that were sent and not answered in full, by number
	heard  moment       // when the last answer came; noMoment if none has
	ended  bool         // the stream takes, sends and answers nothing more
}

// errEndedStream is why a stream ends that the server ends without a reason.
var errEndedStream = status.Error(codes.Unavailable, "the server ended the stream")

// put puts a request on the stream. It fails only if the backend is closed.
func (m *mux[R]) put(r R) error {
	for {
		s, err := m.openStream()
		if err != nil {
			return err
		}
		if s.take(r) {
			return nil
		}
		m.drop(s) // it has just ended
	}
}

// openStream returns the stream that takes new requests, and opens one if there is none.
func (m *mux[R]) openStream() (*muxStream[R], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream != nil {
		return m.stream, nil
	}
	s := &muxStream[R]{mux: m, asked: make(map[uint64]R), wake: make(chan struct{}, 1), heard: noMoment}
	s.protocol = m.newProtocol(s)
	s.ctx, s.cancel = context.WithCancelCause(m.endpoints.Base)
	if !m.endpoints.Spawn(s.run) {
		s.cancel(m.endpoints.Closed)
		return nil, m.endpoints.Closed
	}
	m.stream = s
	return s, nil
}

// drop makes the next request open another stream than s.
func (m *mux[R]) drop(s *muxStream[R]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream == s {
		m.stream = nil
	}
}

// take queues a request for sending. It returns false if the stream has ended.
func (s *muxStream[R]) take(r R) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.protocol.admit(r)
	s.unsent = append(s.unsent, r)
	s.wakeSender()
	return true
}

// wakeSender wakes the sending goroutine.
func (s *muxStream[R]) wakeSender() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// number returns a number for a request that is about to be sent. The caller holds the lock.
func (s *muxStream[R]) number(r R) uint64 {
	s.last++
	s.asked[s.last] = r
	return s.last
}

// run sends until the stream ends.
func (s *muxStream[R]) run() {
	if err := s.protocol.open(s.ctx); err != nil {
		s.end(because(s.ctx, err))
		return
	}
	var reading sync.WaitGroup
	reading.Go(s.read)
	for s.next() {
		if err := s.protocol.send(); err != nil {
			if !errors.Is(err, io.EOF) { // otherwise the reading goroutine receives the reason
				s.end(because(s.ctx, err))
			}
			break
		}
	}
	reading.Wait()
}

// next waits until there is a message to send. It returns false when the stream has ended.
func (s *muxStream[R]) next() bool {
	for {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return false
		}
		if s.protocol.fill() {
			return true
		}
	}
}

// read delivers answers until the stream ends.
func (s *muxStream[R]) read() {
	for {
		if err := s.protocol.receive(); err != nil {
			if errors.Is(err, io.EOF) {
				err = errEndedStream
			}
			s.end(because(s.ctx, err))
			return
		}
		s.mu.Lock()
		s.heard = now()
		s.protocol.answer()
		s.mu.Unlock()
	}
}

// end ends the stream, and fails every request on it.
func (s *muxStream[R]) end(err error) {
	s.cancel(err)
	s.mux.drop(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	err = s.protocol.lost(err)
	for _, r := range s.unsent {
		s.protocol.fail(r, err)
	}
	for _, r := range s.asked { // order: each request has a caller of its own
		s.protocol.fail(r, err)
	}
	s.unsent, s.asked = nil, nil
}

// silent reports whether a request that was taken at since has waited for at least endpoints.FirstStall without any answer on the
// stream. Then no more answers are expected. The caller holds the lock.
func (s *muxStream[R]) silent(since, now moment) bool {
	return s.heard <= since && now.sub(since) >= endpoints.FirstStall
}

// abandon ends a silent stream.
func (s *muxStream[R]) abandon() {
	s.cancel(endpoints.ErrStalled)
	s.mux.drop(s)
}
