package admission

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn
	from string
	port int
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(c.from), Port: c.port}
}

// At the bound, an address that has fewer connections than another gets the place of the newest one of the address that has most.
func TestConnectionsAreSharedByAddress(t *testing.T) {
	froms := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"} // the last two are of one network
	source := func(c *fakeConn) string {
		if c.from == "2001:db8::2" {
			return "2001:db8::1"
		}
		return c.from
	}
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 12).Draw(t, "most")
		c := NewConnections(most)
		var open []*fakeConn // in the order in which they entered
		leave := make(map[*fakeConn]func())
		count := func(of string) (n int) {
			for _, conn := range open {
				if source(conn) == of {
					n++
				}
			}
			return n
		}
		busiest := func() (n int) {
			for _, from := range froms {
				n = max(n, count(from))
			}
			return n
		}
		enter := func(conn *fakeConn) {
			own, greatest, full := count(source(conn)), busiest(), len(open) == most
			left, closed := c.Enter(conn)
			switch gone, _ := closed.(*fakeConn); {
			case !full && closed != nil:
				t.Fatalf("%v is closed for %v although there is room", closed, conn)
			case full && gone == nil:
				t.Fatal("nothing is closed at the bound")
			case gone == conn:
				if greatest >= own+2 {
					t.Fatalf("an address with %d is refused, and another has %d", own, greatest)
				}
				return
			case gone != nil:
				if n := count(source(gone)); n != greatest || n < own+2 {
					t.Fatalf("one of %d gives place to an address with %d, and the greatest number is %d", n, own, greatest)
				}
				i := slices.Index(open, gone)
				if slices.ContainsFunc(open[i+1:], func(later *fakeConn) bool { return source(later) == source(gone) }) {
					t.Fatal("a connection is closed that is not the newest of its address")
				}
				open = slices.Delete(open, i, i+1)
			}
			open = append(open, conn)
			leave[conn] = left
		}
		for port := range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(leave) > 0 && rapid.IntRange(0, 2).Draw(t, "leave") == 0 {
				all := slices.SortedFunc(maps.Keys(leave), func(a, b *fakeConn) int { return a.port - b.port })
				conn := rapid.SampledFrom(all).Draw(t, "left") // it may have been closed, or have left, before
				leave[conn]()
				open = slices.DeleteFunc(open, func(other *fakeConn) bool { return other == conn })
			} else {
				enter(&fakeConn{from: rapid.SampledFrom(froms).Draw(t, "from"), port: port})
			}
			if c.Open() != len(open) {
				t.Fatalf("%d are open, want %d", c.Open(), len(open))
			}
		}
		for _, left := range leave {
			left()
		}
		if state := fmt.Sprint(c.Open(), len(c.sources), len(c.busiest)); state != "0 0 0" {
			t.Fatalf("after all have left, connections, addresses and their heap are %s", state)
		}
	})
}
