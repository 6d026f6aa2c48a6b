package backend

import "context"

type hedgeKey struct{}

// Hedge returns a context for a call of [Backend.Renew] that is made because the answer to an earlier call, for
// the same leases, is overdue. The earlier call goes on.
func Hedge(ctx context.Context) context.Context { return context.WithValue(ctx, hedgeKey{}, true) }

// IsHedge reports whether a context is one of [Hedge], or was derived from one.
func IsHedge(ctx context.Context) bool { return ctx.Value(hedgeKey{}) != nil }
