package claim

import "context"

type renewalKey struct{}

// renewing marks what a client asks a store for in order to renew.
func renewing(ctx context.Context) context.Context { return context.WithValue(ctx, renewalKey{}, true) }

// IsRenewal reports whether a call of a [Store] is part of a renewal. A store may have such calls go before others, and
// over a connection of their own: a lease that is not renewed in time is lost, and a claim can wait.
func IsRenewal(ctx context.Context) bool { return ctx.Value(renewalKey{}) != nil }
