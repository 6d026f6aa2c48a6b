package remote

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/holdwire"
)

// holdCodec is the codec of the Hold stream: package holdwire for the messages that it knows, and gRPC's own codec for
// others.
type holdCodec struct{ encoding.CodecV2 }

// withHoldCodec is the option that makes a stream use holdCodec.
func withHoldCodec() grpc.CallOption {
	return grpc.ForceCodecV2(holdCodec{encoding.GetCodecV2(proto.Name)})
}

// minPooledBuffer is the size of the smallest buffer that the codec takes from the pool. gRPC does not return smaller
// buffers to the pool.
const minPooledBuffer = 2 << 10

// Marshal implements [encoding.CodecV2].
func (c holdCodec) Marshal(v any) (mem.BufferSlice, error) {
	req, ok := v.(*leasekeeperv1.HoldRequest)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(max(holdwire.RequestRoom(req), minPooledBuffer))
	if *buf, ok = holdwire.AppendRequest((*buf)[:0], req); !ok {
		pool.Put(buf)
		return c.CodecV2.Marshal(v) // which returns the reason
	}
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// Unmarshal implements [encoding.CodecV2]. It decodes a response into the memory of the last one: the caller keeps nothing
// of it.
func (c holdCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if resp, ok := v.(*leasekeeperv1.HoldResponse); ok {
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		if holdwire.DecodeResponse(buf.ReadOnlyData(), resp) {
			return nil
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}
