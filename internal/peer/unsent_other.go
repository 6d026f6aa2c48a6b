//go:build !linux && !darwin

package peer

import "net"

// limitUnsent does nothing where the system offers nothing of the kind.
func limitUnsent(*net.TCPConn) {}
