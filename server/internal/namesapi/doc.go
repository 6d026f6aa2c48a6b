// Package namesapi owns the front of leasekeeper.v1: claims, renewals, releases and watches of names, as clients send
// them over gRPC.
//
// A [Service] turns each request into calls of the [Member], and the answers into messages. A Hold or Renew stream has
// one goroutine that reads and one that sends. The work between them is bounded. The service stops reading from a
// client that does not read its answers. A waiting claim whose stream has ended keeps its place in the queue for its
// TTL, and is then removed. All errors pass through one table, which says what a client may conclude from each.
//
// It decides nothing about leases, and renews none.
package namesapi
