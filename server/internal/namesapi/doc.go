// Package namesapi owns the front of leasekeeper.v1: claims, renewals, releases and watches of names, as clients send them
// over gRPC.
//
// A [Service] turns each request into calls of the [Member], and its answers into messages. Hold and Renew have one
// goroutine that reads and one that sends; the work between them is bounded, and a client that does not read its answers is
// not read from. A claim in a queue whose stream has ended keeps its place for its TTL, and then ends. Errors pass through
// one table, which says what a client may conclude from each.
//
// It decides nothing about leases, and renews none.
package namesapi
