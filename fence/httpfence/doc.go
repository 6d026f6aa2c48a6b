// Package httpfence carries fencing tokens over HTTP: a middleware that refuses stale requests, and a
// transport that puts the token of a lease on each request.
//
// What it promises: behind [Middleware] a handler runs only with a token that is at least as new as every
// other that came for the same resource, and only while no other token's handler for that resource runs; see
// [fence.Guard.Do]. A request that is refused has not reached the handler, and the answer says what to do.
// [Transport] sends nothing if the lease is lost, and turns the refusal of a stale token into a
// [fence.StaleError], so that it cannot be taken for an answer.
//
// How it works: the header [Header] holds one decimal number. The server refuses with
//
//	400  the token is malformed or given twice, or the request names no resource
//	412  the token is stale; [HighestHeader] holds the one that was seen
//	428  there is no token
//	503  the mark could not be saved, or the guard is full; the request may be repeated
//
// When a newer token comes while a handler runs, the context of that handler's request ends, and so do its
// reads of the request's body: a client that was succeeded and sends slowly does not hold up its successor.
//
// A new holder that reads before it writes first sends a request with its token to a guarded route, be it one
// that does nothing: from its answer on, what it reads no predecessor can change; see [fence.Guard.Advance].
//
// What it never does: it does not make several servers of one resource agree, each of which has a guard of its
// own: let what they write to check the token then, too. It does not authenticate. A client that may send requests
// may send a high token, which locks others out. So let only clients through that may write. It does not protect
// what a handler does after it has returned, nor a resource that is also written to past the middleware.
package httpfence
