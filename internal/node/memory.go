package node

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// SetMemoryShort reports to the member whether the process lacks memory for more leases; see [replica.Memory].
func (n *Node) SetMemoryShort(ctx context.Context, short bool) error {
	return n.submit(ctx, replica.Memory{Short: short})
}

// DefaultAnswerBytes is the default of Config.AnswerBytes.
const DefaultAnswerBytes = 64 << 20
