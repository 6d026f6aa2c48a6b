package claim

import (
	"context"
	"time"
)

type (
	renewalKey struct{}
	yieldKey   struct{}
)

// renewing returns a context that marks calls of the store as part of a renewal.
func renewing(ctx context.Context) context.Context { return context.WithValue(ctx, renewalKey{}, true) }

// IsRenewal reports whether a call of a [Store] is part of a renewal. A store may execute such calls before
// others, and over a connection of their own: a lease that is not renewed in time is lost, but a claim can
// wait.
func IsRenewal(ctx context.Context) bool { return ctx.Value(renewalKey{}) != nil }

// usualYield is the [Yield] of calls that are not part of a claim.
const usualYield = time.Second

// yielding returns a context that marks calls of the store as part of a claim with this TTL.
func yielding(ctx context.Context, ttl time.Duration) context.Context {
	return context.WithValue(ctx, yieldKey{}, ttl/3)
}

// Yield returns how long a call of a [Store] may at most wait for renewals that go before it: a third of the
// TTL of the claim. After that it must not wait for a renewal that has not begun.
func Yield(ctx context.Context) time.Duration {
	if d, known := ctx.Value(yieldKey{}).(time.Duration); known {
		return d
	}
	return usualYield
}
