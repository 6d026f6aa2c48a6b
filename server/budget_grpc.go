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
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// bill is the room that one answer takes of an account: from when it is built, which a [keyspace.Room] is for, until the
// transport has written it, or thrown it away, which a [mem.BufferPool] hears of. One goroutine uses it at a time.
type bill struct {
	account *account
	turn    *encodingTurn
	built   int64 // bytes that the answer takes
	taken   int64 // bytes of the account; built ≤ taken, or built ≤ uncounted
}

// billStep is how much an answer takes of its account at a time.
const billStep = 64 << 10

// Take implements [keyspace.Room].
func (b *bill) Take(bytes int) error {
	built := b.built + int64(bytes)
	if built > max(b.taken, uncounted) {
		more := max(built-b.taken, billStep)
		if err := b.account.take(answerBytes, more); err != nil {
			return err
		}
		b.taken += more
	}
	b.built = built
	return nil
}

// Give implements [keyspace.Room].
func (b *bill) Give(bytes int) { b.built -= int64(bytes) }

// settle makes the bill that of a message of so many bytes, which is there already.
func (b *bill) settle(bytes int64) {
	b.account.force(answerBytes, bytes-b.taken)
	b.built, b.taken = bytes, bytes
}

// Get implements [mem.BufferPool].
func (b *bill) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements [mem.BufferPool]: the message is needed no longer.
func (b *bill) Put(buf *[]byte) {
	b.settle(0)
	mem.DefaultBufferPool().Put(buf)
}

// billed is a message with its bill, for the codec.
type billed struct {
	message proto.Message
	bill    *bill
}

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*billed)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := proto.Size(b.message)
	if size <= uncounted {
		b.bill.settle(0)
		return c.CodecV2.Marshal(b.message)
	}
	give, err := b.bill.turn.take(size)
	if err != nil {
		b.bill.settle(0)
		return nil, err
	}
	b.bill.settle(int64(size))
	buf := b.bill.Get(size)
	bytes, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], b.message)
	give()
	if err != nil {
		b.bill.Put(buf)
		return nil, err
	}
	*buf = bytes
	return mem.BufferSlice{mem.NewBuffer(buf, b.bill)}, nil
}

// buildsAnswers are the methods whose answers may be large, and are counted while they are built.
var buildsAnswers = map[string]bool{pb.KV_Range_FullMethodName: true, pb.KV_Txn_FullMethodName: true}

// unaryOfClient stands before every request with one answer of a client on a connection of its own: it counts what the
// request and its answer take.
func (s *Server) unaryOfClient(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	account := s.accountOf(ctx)
	if n := int64(proto.Size(req.(proto.Message))); n > uncounted {
		if err := account.take(requestBytes, n); err != nil {
			err = s.answerTo(info.FullMethod, err)
			s.metrics.count(info.FullMethod, err)
			return nil, err
		}
		defer account.give(requestBytes, n)
	}
	sendPlain(ctx)
	b := &bill{account: account, turn: &encodingTurn{ctx, s.bulk, largeAnswer}}
	if buildsAnswers[info.FullMethod] {
		ctx = keyspace.WithRoom(ctx, b)
	}
	resp, err := s.unary(ctx, req, info, handle)
	message, ok := resp.(proto.Message)
	if err != nil || !ok {
		b.settle(0)
		return resp, err
	}
	return &billed{message, b}, nil
}

// streamOfClient is unaryOfClient for long streams.
func (s *Server) streamOfClient(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx := stream.Context()
	account := s.accountOf(ctx)
	if err := account.take(longStreams, 1); err != nil {
		err = s.answerTo(info.FullMethod, err)
		s.metrics.count(info.FullMethod, err)
		return err
	}
	defer account.give(longStreams, 1)
	sendPlain(ctx)
	counted := &countedStream{ServerStream: stream, account: account, turn: &encodingTurn{ctx, s.bulk, largeMessage}}
	defer counted.end()
	return s.stream(srv, counted, info, handle)
}

// countedStream counts what messages of a long stream take.
type countedStream struct {
	grpc.ServerStream
	account *account
	turn    *encodingTurn

	// A goroutine of the handler that receives may outlast the handler.
	mu       sync.Mutex
	received int64 // bytes of the message that was received last, if they are counted; guarded by mu
	ended    bool  // the handler has returned, and nothing is counted any longer; guarded by mu
}

// SendMsg implements [grpc.ServerStream]. It waits until there is room for the message.
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
		if err := lifetime.Pause(ctx, backoff.Doubled(answerPause, longestAnswerPause, tries)); err != nil {
			return err
		}
	}
	return c.ServerStream.SendMsg(&billed{message, &bill{account: c.account, turn: c.turn, built: size, taken: size}})
}

// RecvMsg implements [grpc.ServerStream]. What was received before is taken to be needed no longer.
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

// keepReceived takes note of a message whose bytes the account has, until the next one is received or the stream ends.
func (c *countedStream) keepReceived(size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		c.account.give(requestBytes, size)
		return
	}
	c.received = size
}

func (c *countedStream) giveReceived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.received > 0 {
		c.account.give(requestBytes, c.received)
		c.received = 0
	}
}

// end gives back what is still counted when the handler returns.
func (c *countedStream) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.giveReceived()
}

// sendPlain has the answers to a client that compresses its requests sent as they are: of a compressed one nobody would
// hear when it was sent.
func sendPlain(ctx context.Context) {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if ok && stream.RecvCompress() != "" {
		_ = grpc.SetSendCompressor(ctx, encoding.Identity) // fails only after headers were sent
	}
}
