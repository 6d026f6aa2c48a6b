//go:build !linux && !darwin

package peer

import "net"

// limitUnsent does nothing: this system has no such limit.
func limitUnsent(*net.TCPConn) {}
