package claimtest

import "github.com/leasekeeper/leasekeeper/claim"

// Plain returns s as a store without optional abilities.
func Plain(s claim.Store) claim.Store { return struct{ claim.Store }{s} }
