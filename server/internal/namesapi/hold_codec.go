package namesapi

import (
	"google.golang.org/grpc/mem"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/holdwire"
)

// Unmarshal decodes a message of claims and releases by package holdwire, which reuses the memory of the message that was
// decoded into v before. It returns false for every other message. Then gRPC's own codec must decode it.
func Unmarshal(data mem.BufferSlice, v any) bool {
	req, ok := v.(*leasekeeperv1.HoldRequest)
	if !ok {
		return false
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return holdwire.DecodeRequest(buf.ReadOnlyData(), req)
}
