// Package forwarding owns the requests that members send each other on behalf of clients. A follower forwards a request
// that only the leader serves, as a whole. A member serves forwarded requests under the same limits as those of
// clients.
//
// A [Forwarder] is the sending side. [Forwarder.Unary] and [Forwarder.Stream] intercept every request of a client, and
// serve it here or at the leader. An [Incoming] is the receiving side, and offers services to other members. A
// forwarded request is never forwarded again.
//
// The trailer of a call shows the forwarding member that the other member itself has answered. If a request may have
// reached the leader, and its answer is lost, its outcome is unknown. It is never repeated.
//
// It knows which methods only the leader serves, and nothing else about them.
package forwarding
