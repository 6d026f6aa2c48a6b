package claim

import (
	"context"
	"time"
)

type (
	renewalKey struct{}
	yieldKey   struct{}
)

// renewing marks what a client asks a store for in order to renew.
func renewing(ctx context.Context) context.Context { return context.WithValue(ctx, renewalKey{}, true) }

// IsRenewal reports whether a call of a [Store] is part of a renewal. A store may have such calls go before others, and
// over a connection of their own: a lease that is not renewed in time is lost, and a claim can wait.
func IsRenewal(ctx context.Context) bool { return ctx.Value(renewalKey{}) != nil }

// usualYield is that of calls that are not part of a claim.
const usualYield = time.Second

// yielding marks what a client asks a store for in order to claim a name.
func yielding(ctx context.Context, ttl time.Duration) context.Context {
	return context.WithValue(ctx, yieldKey{}, ttl/3)
}

// Yield returns how long a call of a [Store] may wait at most because renewals go before it: a third of the TTL that a
// claim asks for. After that it is not to wait for a renewal that has not begun.
func Yield(ctx context.Context) time.Duration {
	if d, known := ctx.Value(yieldKey{}).(time.Duration); known {
		return d
	}
	return usualYield
}
