// Package forwarding owns the requests that members send each other for clients: what only the leader can do goes to the
// leader as a whole, and what another member sends is served here under the same limits.
//
// A [Forwarder] is the sending side. [Forwarder.Unary] and [Forwarder.Stream] stand before every request of a client, and
// serve it here or at the leader. An [Incoming] is the receiving side: it offers services to other members. A peer request
// is never forwarded again.
//
// The trailer of a call tells the forwarding member whether the other member has spoken. A request that may have reached
// the leader, and whose answer is lost, has an unknown outcome; it is never repeated.
//
// It knows which methods only the leader serves, and nothing else of what they do.
package forwarding
