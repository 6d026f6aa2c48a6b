package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
)

// pingsPerSilence is the number of pings in Config.Silence.
const pingsPerSilence = 4

// errEnded is the error of a stream that the other side ended without an error, although the transport did not ask
// for it.
var errEnded = errors.New("it has ended the connection")

type frameStream = grpc.BidiStreamingClient[peerpb.Batch, peerpb.Echo]

// session is one connection's pair of frame streams to a member.
type session struct {
	l            *link
	ctx          context.Context
	end          context.CancelCauseFunc
	urgent, bulk frameStream

	mu    sync.Mutex
	heard time.Time // when the last echo arrived
}

// session opens the streams and sends queued frames until a stream ends. It returns the reason, and whether the
// member had accepted the streams.
func (l *link) session(ctx context.Context) (connected bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s := &session{l: l, ctx: ctx, end: end}
	closing := context.AfterFunc(l.t.draining, func() { end(ErrClosed) }) // closing does not wait for the streams to open
	err = s.open()
	closing()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return false, err
	}
	s.heard = time.Now()
	l.urgent.connect()
	l.bulk.connect()
	l.connected()
	var streams, rest sync.WaitGroup
	streams.Go(func() { s.send(s.urgent, l.urgent) })
	streams.Go(func() { s.send(s.bulk, l.bulk) })
	streams.Go(func() { s.listen(s.urgent) })
	streams.Go(func() { s.listen(s.bulk) })
	rest.Go(s.watch)
	streams.Wait()
	end(errEnded)
	rest.Wait()
	l.urgent.disconnect()
	l.bulk.disconnect()
	l.markLost() // the frames in flight
	return true, context.Cause(ctx)
}

// open opens both streams, and waits until the member has accepted them.
func (s *session) open() (err error) {
	if s.urgent, err = s.l.client.Urgent(s.ctx); err != nil {
		return err
	}
	if s.bulk, err = s.l.client.Bulk(s.ctx); err != nil {
		return err
	}
	late := time.AfterFunc(s.l.t.cfg.Silence, s.giveUp)
	defer late.Stop()
	for _, stream := range []frameStream{s.urgent, s.bulk} {
		if err := s.await(stream); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) await(stream frameStream) error {
	header, err := stream.Header()
	if err != nil {
		return err
	}
	hello := parseHello(header)
	if hello == nil {
		// The member refused the stream, and the trailer says why; or the server is not a member.
		if _, err := stream.Recv(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if err := s.l.t.checkHello(hello); err != nil {
		return err
	}
	if hello.From != s.l.member {
		return fmt.Errorf("it is the member %x, not %x: correct the peer URLs (--initial-cluster before the members change), or where their names lead", hello.From, s.l.member)
	}
	s.l.introduced(hello.Incarnation)
	return nil
}

// giveUp ends a session with a member that does not answer, and closes all connections to it.
func (s *session) giveUp() {
	s.end(errSilent)
	s.l.hangUp()
}

// send sends the queued frames on a stream, as many at once as there are.
func (s *session) send(stream frameStream, q *queue) {
	batch := make([][]byte, 0, maxBatchFrames)
	for draining := false; ; {
		var ping uint64
		var whole bool
		if batch, ping, whole = q.take(batch[:0], time.Now()); !whole {
			s.l.markLost()
		}
		if len(batch) > 0 || ping != 0 {
			if stream.Send(&peerpb.Batch{Frames: batch, Ping: ping}) != nil {
				return // listen has the error
			}
			clear(batch)
			continue
		}
		if draining {
			stream.CloseSend()
			return
		}
		select {
		case <-q.ready:
		case <-s.l.t.draining.Done():
			draining = true // first send the frames that were queued before
		case <-s.ctx.Done():
			return
		}
	}
}

// listen receives echoes until the stream ends.
func (s *session) listen(stream frameStream) {
	for {
		echo, err := stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) || !s.l.t.isDraining() {
				s.end(unlessEOF(err))
			}
			return
		}
		now := time.Now()
		s.mu.Lock()
		s.heard = now
		s.mu.Unlock()
		s.l.measured(now.Sub(s.l.t.created) - time.Duration(echo.Ping))
	}
}

func unlessEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	return err
}

// watch sends pings, and ends the session when no echoes arrive.
func (s *session) watch() {
	silence := s.l.t.cfg.Silence
	interval := silence / pingsPerSilence
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for before := time.Now(); ; {
		s.l.urgent.askEcho(uint64(max(time.Since(s.l.t.created), 1)))
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		now := time.Now()
		s.mu.Lock()
		if now.Sub(before) > 2*interval {
			s.heard = now // this process itself was paused
		}
		silent := now.Sub(s.heard) > silence
		s.mu.Unlock()
		before = now
		if silent {
			s.giveUp()
			return
		}
		s.l.announce(now)
	}
}
