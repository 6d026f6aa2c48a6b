package server

import "sync/atomic"

// forwards counts what was sent on to the leader.
type forwards struct {
	sent   atomic.Uint64 // requests and streams
	failed atomic.Uint64 // … that did not get there, or whose answer was lost
}
