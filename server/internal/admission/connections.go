package admission

import (
	"container/heap"
	"container/list"
	"net"
	"sync"
)

// Connections bounds the open connections of a listener. At the bound, a new connection takes the place of the newest one of the
// address that has most of them, if that has at least two more than the address of the new one. So an address that floods the
// listener closes its own connections first, and its older ones stay. Otherwise there is no room for the new connection.
// Addresses are compared as by [IdentityOfAddress]. Connections is safe for concurrent use.
type Connections struct {
	most int

	mu      sync.Mutex
	open    int
	sources map[Identity]*source // those with open connections
	busiest sources              // the same
}

// source is an address with open connections.
type source struct {
	id    Identity
	conns list.List // of *openConn, in the order in which they were opened; never empty
	at    int       // in busiest
}

type openConn struct {
	net.Conn
	of *source
	at *list.Element // nil after the connection has left
}

// NewConnections makes a bound of most open connections.
func NewConnections(most int) *Connections {
	return &Connections{most: most, sources: make(map[Identity]*source)}
}

// Open returns the number of open connections.
func (c *Connections) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Enter adds a connection that was accepted. The caller must call leave when the connection is closed; more calls do nothing. If
// closed is not nil, the caller must close that connection, which is no longer counted. If it is conn itself, there is no room, and
// no leave.
func (c *Connections) Enter(conn net.Conn) (leave func(), closed net.Conn) {
	id := IdentityOfAddress(conn.RemoteAddr().String())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.most {
		if closed = c.replace(id); closed == nil {
			return nil, conn
		}
	}
	from := c.sources[id]
	if from == nil {
		from = &source{id: id}
		c.sources[id] = from
		heap.Push(&c.busiest, from)
	}
	entered := &openConn{Conn: conn, of: from}
	entered.at = from.conns.PushBack(entered)
	heap.Fix(&c.busiest, from.at)
	c.open++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.remove(entered)
	}, closed
}

// replace removes the connection whose place a new one of an address takes, and returns it; nil if there is none. The caller holds
// mu.
func (c *Connections) replace(id Identity) net.Conn {
	own := 0
	if from := c.sources[id]; from != nil {
		own = from.conns.Len()
	}
	if len(c.busiest) == 0 || c.busiest[0].conns.Len() < own+2 {
		return nil
	}
	newest := c.busiest[0].conns.Back().Value.(*openConn)
	c.remove(newest)
	return newest.Conn
}

// remove forgets a connection that has not left. The caller holds mu.
func (c *Connections) remove(conn *openConn) {
	if conn.at == nil {
		return
	}
	from := conn.of
	from.conns.Remove(conn.at)
	conn.at = nil
	c.open--
	if from.conns.Len() > 0 {
		heap.Fix(&c.busiest, from.at)
		return
	}
	heap.Remove(&c.busiest, from.at)
	delete(c.sources, from.id)
}

// sources is a heap whose first element is a source with the greatest number of connections.
type sources []*source

func (s sources) Len() int           { return len(s) }
func (s sources) Less(i, j int) bool { return s[i].conns.Len() > s[j].conns.Len() }
func (s sources) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].at, s[j].at = i, j
}

func (s *sources) Push(added any) {
	from := added.(*source)
	from.at = len(*s)
	*s = append(*s, from)
}

func (s *sources) Pop() any {
	last := len(*s) - 1
	from := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return from
}
