package node

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// SetMemoryShort tells the member whether the process has memory left for more leases; see [Memory].
func (n *Node) SetMemoryShort(ctx context.Context, short bool) error {
	return n.submit(ctx, replica.Memory{Short: short})
}

// DefaultAnswerBytes is what NodeConfig.AnswerBytes is if nothing is said.
const DefaultAnswerBytes = 64 << 20
