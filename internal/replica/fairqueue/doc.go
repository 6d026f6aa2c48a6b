// Package fairqueue owns the order in which clients that share something are served, and how much of a bounded queue one
// client may fill.
//
// A [Queue] uses self-clocked fair queueing (S. J. Golestani, INFOCOM 1994): the item with the lowest tag is next. An
// item's tag is its cost plus the tag of the item before it of the same client. If that client has no item waiting, it is
// the cost plus the tag of the item that was served last. So while an item is the first of its client, each other client
// is served what that item costs, and at most one item more. It does not matter how many items the others have waiting.
// Items of one client are served in the order in which they came.
//
// A client may fill three quarters of what the others leave of the queue. A lone client hardly misses the rest, and the
// next client finds space.
//
// The package is pure: the same calls give the same order. It forgets a client that has no item waiting. It starts no
// goroutine, reads no clock, and does not know what an item is.
package fairqueue
