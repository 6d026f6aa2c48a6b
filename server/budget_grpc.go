package server

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/backoff"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// reservation is the memory that one answer takes of an account. It grows while the answer is built, as a
// [keyspace.Room]. It ends when the transport has written or discarded the answer, as a [mem.BufferPool]. One goroutine
// at a time uses it.
type reservation struct {
	account *account
	turn    *encodingTurn
	built   int64 // bytes that the answer needs so far
	taken   int64 // bytes taken of the account; built ≤ max(taken, uncounted)
}

// reservationStep is the number of bytes that a growing answer takes of its account at a time.
const reservationStep = 64 << 10

// Take implements [keyspace.Room].
func (b *reservation) Take(bytes int) error {
	built := b.built + int64(bytes)
	if built > max(b.taken, uncounted) {
		more := max(built-b.taken, reservationStep)
		if err := b.account.take(answerBytes, more); err != nil {
			return err
		}
		b.taken += more
	}
	b.built = built
	return nil
}

// Give implements [keyspace.Room].
func (b *reservation) Give(bytes int) { b.built -= int64(bytes) }

// settle sets the reservation to the size in bytes of a complete message. It succeeds regardless of bounds.
func (b *reservation) settle(bytes int64) {
	b.account.force(answerBytes, bytes-b.taken)
	b.built, b.taken = bytes, bytes
}

// Get implements [mem.BufferPool].
func (b *reservation) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements [mem.BufferPool]. The transport calls it when it no longer needs the message.
func (b *reservation) Put(buf *[]byte) {
	b.settle(0)
	mem.DefaultBufferPool().Put(buf)
}

// reservedMessage is a message with its reservation, for the codec.
type reservedMessage struct {
	message     proto.Message
	reservation *reservation
}

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*reservedMessage)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := proto.Size(b.message)
	if size <= uncounted {
		b.reservation.settle(0)
		return c.CodecV2.Marshal(b.message)
	}
	give, err := b.reservation.turn.take(size)
	if err != nil {
		b.reservation.settle(0)
		return nil, err
	}
	b.reservation.settle(int64(size))
	buf := b.reservation.Get(size)
	bytes, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], b.message)
	give()
	if err != nil {
		b.reservation.Put(buf)
		return nil, err
	}
	*buf = bytes
	return mem.BufferSlice{mem.NewBuffer(buf, b.reservation)}, nil
}

// buildsAnswers are the methods whose answers may be large. The server counts these answers while it builds them.
var buildsAnswers = map[string]bool{pb.KV_Range_FullMethodName: true, pb.KV_Txn_FullMethodName: true}

// interceptClientUnary intercepts every unary request of a client. It counts the memory of the request and of its
// answer.
func (s *Server) interceptClientUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	account := s.accountOf(ctx)
	if n := int64(proto.Size(req.(proto.Message))); n > uncounted {
		if err := account.take(requestBytes, n); err != nil {
			return nil, s.refused(ctx, info.FullMethod, err)
		}
		defer account.release(requestBytes, n)
	}
	ctx, err := s.guard.Arrive(ctx, info.FullMethod)
	if err != nil {
		return nil, s.refused(ctx, info.FullMethod, err)
	}
	sendPlain(ctx)
	b := &reservation{account: account, turn: &encodingTurn{ctx, s.bulk, largeAnswer}}
	if buildsAnswers[info.FullMethod] {
		ctx = keyspace.WithRoom(ctx, b)
	}
	resp, err := s.unary(ctx, req, info, handle)
	message, ok := resp.(proto.Message)
	if err != nil || !ok {
		b.settle(0)
		return resp, err
	}
	return &reservedMessage{message, b}, nil
}

// interceptClientStream intercepts every stream of a client. It counts the stream and the memory of its messages.
func (s *Server) interceptClientStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx := stream.Context()
	account := s.accountOf(ctx)
	if err := account.take(longStreams, 1); err != nil {
		return s.refused(ctx, info.FullMethod, err)
	}
	defer account.release(longStreams, 1)
	ctx, err := s.guard.Arrive(ctx, info.FullMethod)
	if err != nil {
		return s.refused(ctx, info.FullMethod, err)
	}
	sendPlain(ctx)
	counted := &countedStream{ServerStream: admission.WithContext(ctx, stream), account: account, turn: &encodingTurn{ctx, s.bulk, largeMessage}}
	defer counted.end()
	return s.stream(srv, counted, info, handle)
}

// countedStream counts the memory that the messages of a stream take.
type countedStream struct {
	grpc.ServerStream
	account *account
	turn    *encodingTurn

	// mu is needed because a goroutine of the handler that receives may outlast the handler.
	mu       sync.Mutex
	received int64 // bytes counted for the newest received message; guarded by mu
	ended    bool  // the handler has returned, so nothing is counted; guarded by mu
}

// SendMsg implements [grpc.ServerStream]. It waits until there is memory for the message.
func (c *countedStream) SendMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return c.ServerStream.SendMsg(m)
	}
	size := int64(proto.Size(message))
	if size <= uncounted {
		return c.ServerStream.SendMsg(m)
	}
	ctx := c.Context()
	for tries := 0; ; tries++ {
		err := c.account.take(answerBytes, size)
		if err == nil {
			break
		}
		if size > c.account.budget.pools[answerBytes].each {
			return err // it will never fit
		}
		if err := lifetime.Pause(ctx, backoff.Doubled(sendPause, longestSendPause, tries)); err != nil {
			return err
		}
	}
	return c.ServerStream.SendMsg(&reservedMessage{message, &reservation{account: c.account, turn: c.turn, built: size, taken: size}})
}

// RecvMsg implements [grpc.ServerStream]. It assumes that the handler no longer needs the previous message.
func (c *countedStream) RecvMsg(m any) error {
	c.giveReceived()
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if message, ok := m.(proto.Message); ok {
		if size := int64(proto.Size(message)); size > uncounted {
			if err := c.account.take(requestBytes, size); err != nil {
				return err
			}
			c.keepReceived(size)
		}
	}
	return nil
}

// keepReceived counts a received message until the next one is received or the stream ends. The account has already
// taken its bytes.
func (c *countedStream) keepReceived(size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		c.account.release(requestBytes, size)
		return
	}
	c.received = size
}

func (c *countedStream) giveReceived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received > 0 {
		c.account.release(requestBytes, c.received)
		c.received = 0
	}
}

// end releases what is still counted when the handler returns.
func (c *countedStream) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.giveReceived()
}

// sendPlain disables compression of the answers to a client that compresses its requests. The server could not find out
// when a compressed answer has been sent.
func sendPlain(ctx context.Context) {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if ok && stream.RecvCompress() != "" {
		_ = grpc.SetSendCompressor(ctx, encoding.Identity) // fails only after headers were sent
	}
}
