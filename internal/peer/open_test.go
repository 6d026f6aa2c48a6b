package peer

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/authority"
)

// addressed is a listener that only has an address.
type addressed struct {
	net.Listener
	addr net.Addr
}

func (l addressed) Addr() net.Addr { return l.addr }

// Programs on other machines can act as a member if the listener has more than loopback addresses, and the members have no
// certificates.
func TestTransportIsOpenBeyondLoopbackWithoutTLS(t *testing.T) {
	ca := authority.New(t, "authority")
	certificates := filesOf(t, ca, here, ca)
	for _, c := range []struct {
		addr net.Addr
		open bool // without certificates
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, false},
		{&net.TCPAddr{IP: net.IPv4(127, 255, 0, 9)}, false},
		{&net.TCPAddr{IP: net.IPv6loopback}, false},
		{&net.TCPAddr{IP: net.IPv4zero}, true},
		{&net.TCPAddr{IP: net.IPv6zero}, true},
		{&net.TCPAddr{}, true},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, true},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1")}, true},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, true},
		{&net.UnixAddr{Name: "/run/socket", Net: "unix"}, false},
	} {
		for _, files := range []CertificateFiles{{}, certificates} {
			tr, err := New(Config{
				Self: 1, ClusterID: testCluster, Incarnation: 1, Members: map[uint64]string{1: here + ":2380"}, Listener: addressed{addr: c.addr}, Files: files,
				Receive: func(uint64, uint64, []byte) {}, ReceiveState: func(context.Context, uint64, uint64, []byte, io.Reader) error { return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := c.open && files.empty(); tr.Open() != want {
				t.Errorf("a listener at %v, with certificates %t: open is %t, want %t", c.addr, !files.empty(), tr.Open(), want)
			}
			if err := tr.Close(within(t)); err != nil {
				t.Error(err)
			}
		}
	}
}
