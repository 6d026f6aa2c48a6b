//go:build linux || darwin

package peer

import (
	"net"

	"golang.org/x/sys/unix"
)

// maxUnsent is how much the system takes in that the network cannot carry yet.
const maxUnsent = 128 << 10

// limitUnsent has what is to be sent wait here, where urgent frames overtake, rather than in the system, where nothing
// does. A system that does not know how to works as well, with urgent frames later under load.
func limitUnsent(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}
