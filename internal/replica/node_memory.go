package replica

import "context"

// SetMemoryShort tells the member whether the process has memory left for more leases; see [Memory].
func (n *Node) SetMemoryShort(ctx context.Context, short bool) error {
	return n.handIn(ctx, Memory{short})
}

// DefaultAnswerBytes is what NodeConfig.AnswerBytes is if nothing is said.
const DefaultAnswerBytes = 64 << 20
