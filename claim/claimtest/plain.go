package claimtest

import "github.com/leasekeeper/leasekeeper/claim"

// Plain returns s as a store that can do nothing beyond the least.
func Plain(s claim.Store) claim.Store { return struct{ claim.Store }{s} }
