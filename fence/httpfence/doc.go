// Package httpfence carries fencing tokens over HTTP: a middleware that refuses stale requests, and a
// transport that puts the token of a lease on each request.
//
// # What it promises
//
// Behind [Middleware] a handler runs only with a token that is at least as new as every other token for the
// same resource, and only while no handler with another token for that resource runs; see [fence.Guard.Do]. A
// refused request has not reached the handler, and its answer says what to do. [Transport] sends nothing if
// the lease is lost. It turns the refusal of a stale token into a [fence.StaleError], so that no caller takes
// the refusal for an answer.
//
// # How it works
//
// The header [Header] holds one decimal number. The server refuses a request with
//
//	400  the token is malformed or given twice, or the request names no resource
//	412  the token is stale; [HighestHeader] holds the highest token that the server has seen
//	428  there is no token
//	503  the mark could not be saved, or the guard is full; the request may be repeated
//
// When a newer token arrives while a handler runs, the context of that handler's request ends, and so do its
// reads of the request's body. So a replaced client that sends slowly does not delay the new holder.
//
// A new holder that reads before it writes first sends a request with its token to a guarded route, which may
// do nothing. Once it has the answer, no previous holder can change what it reads; see [fence.Guard.Advance].
//
// # What it never does
//
// It does not make several servers of one resource agree, because each has its own guard: then the resource
// behind the servers must check the token too. It does not authenticate. A client that may send requests may
// send a high token, which locks others out, so admit only clients that are allowed to write. It does not
// protect what a handler does after it has returned, nor a resource that programs also write to without the
// middleware.
package httpfence
