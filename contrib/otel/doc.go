// Package otellease makes OpenTelemetry spans of what a program does with leases. A [Tracer] acquires names and runs
// functions under a lease, as a keeper does, with spans around that:
//
//	tracing := otellease.New(nil)
//	keeper, err := leasekeeper.Open(ctx, url, leasekeeper.WithHook(tracing.Hook))
//	…
//	err = tracing.Run(ctx, keeper, "jobs/nightly-backup", backUp)
//
// # Spans
//
//   - "leasekeeper.acquire" is a call that waits for a name, from its beginning until it has the name or fails.
//   - "leasekeeper.run" is a call of [Tracer.Run]. The acquire span is its child, and so are the spans that the function
//     starts with its context.
//   - "leasekeeper.tenure" is one run of a function that [Tracer.Func] wraps, for [leasekeeper.Keeper.Campaign].
//
// Their attributes are leasekeeper.name, and once the name is held, leasekeeper.token and leasekeeper.waited_seconds (not on
// a tenure). If another holder has the name and the call does not wait, leasekeeper.holder names that holder; that is no
// error of the span. Any other error is.
//
// # Events
//
// The spans of run and tenure get an event with the time at which it happened: "lease in doubt", "lease renewed again",
// "tenure ends early" and "lease lost". For a lease of [Tracer.Acquire] the span that the caller's context carried gets
// them, as long as that span has not ended. The attribute leasekeeper.reason says why, leasekeeper.left_seconds how long a
// lease in doubt lasts.
//
// # To the store
//
// Requests of these calls tell etcd and our server their span, in the header traceparent of W3C Trace Context. [Propagate]
// does so for other calls. Renewals carry no header, because one request renews the leases of many calls.
//
// # What is promised
//
//   - The calls do what those of the keeper do, with the same results. The span ends with the call.
//   - A loss that ended the context of a function is an event of its span, even if the hook is late.
//   - The memory for leases whose events are awaited is bounded by their number.
//
// # How it works
//
// The events come from reports of the keeper's hook, off the path of renewals. They do not come from
// [leasekeeper.Lease.InDoubt], whose channel belongs to the program. So without [leasekeeper.WithHook] there are no events
// but the loss under Run and Func, and the early end under Run. One Tracer serves one keeper: two stores may give the same name the
// same token.
//
// # What it never does
//
// It starts no goroutine, sets up no exporter, and makes no span for a renewal.
package otellease
