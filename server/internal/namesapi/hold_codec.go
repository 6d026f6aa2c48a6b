package namesapi

import (
	"google.golang.org/grpc/mem"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/holdwire"
)

// Unmarshal decodes a HoldRequest with package holdwire, which reuses the memory of the previous message in v. It
// returns false for any other type. gRPC's own codec must then decode the message.
func Unmarshal(data mem.BufferSlice, v any) bool {
	req, ok := v.(*leasekeeperv1.HoldRequest)
	if !ok {
		return false
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return holdwire.DecodeRequest(buf.ReadOnlyData(), req)
}
