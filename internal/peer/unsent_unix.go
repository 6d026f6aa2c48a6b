//go:build linux || darwin

package peer

import (
	"net"

	"golang.org/x/sys/unix"
)

// maxUnsent bounds the bytes in the operating system's send buffer that the network cannot carry yet.
const maxUnsent = 128 << 10

// limitUnsent keeps unsent data in this process, where urgent frames overtake, instead of in the operating system's
// send buffer, where nothing overtakes. If the system does not support that, urgent frames are later under load.
func limitUnsent(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}
