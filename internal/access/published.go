package access

import "sync/atomic"

// Published is the place from which goroutines load the policy that a member has applied. A member that applies a change
// stores the policy before it shows the changes of keys and leases that come after it. So a reader that loads the policy
// after it has read knows every policy before what it has seen. The zero Published has the policy of a new cluster.
type Published struct{ policy atomic.Pointer[Policy] }

// Load returns the policy. Any goroutine may call it.
func (p *Published) Load() *Policy { return p.policy.Load() }

// Store replaces the policy. The goroutine that applies commands calls it.
func (p *Published) Store(policy *Policy) { p.policy.Store(policy) }
