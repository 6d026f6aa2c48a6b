package peer

import (
	"net"
	"sync"
	"testing"
)

// proxy relays the connections between a member and those that dial it.
type proxy struct {
	t        testing.TB
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	moved *sync.Cond
	// there and back stop the bytes towards the dialled member, and back from it.
	there, back bool
	deaf        bool // every connection is refused
	closed      bool
	conns       map[*net.TCPConn]bool
	accepted    int
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	p := &proxy{t: t, listener: listen(t), target: target, conns: make(map[*net.TCPConn]bool)}
	p.moved = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	p.listener.Close()
	p.set(func() { p.closed = true })
	p.reset()
	p.running.Wait()
}

// set changes the proxy's fields.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.moved.Broadcast()
}

// stall stops all bytes and keeps the connections open.
func (p *proxy) stall()  { p.set(func() { p.there, p.back = true, true }) }
func (p *proxy) resume() { p.set(func() { p.there, p.back, p.deaf = false, false, false }) }

// refuse closes all connections and refuses new ones.
func (p *proxy) refuse() {
	p.set(func() { p.deaf = true })
	p.reset()
}

func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.SetLinger(0)
		conn.Close()
	}
	clear(p.conns)
}

func (p *proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		deaf := p.deaf || p.closed
		p.accepted++
		p.mu.Unlock()
		to, err := net.Dial("tcp", p.target)
		if err != nil || deaf {
			from.Close()
			if to != nil {
				to.Close()
			}
			continue
		}
		a, b := from.(*net.TCPConn), to.(*net.TCPConn)
		p.set(func() { p.conns[a], p.conns[b] = true, true })
		p.running.Go(func() { p.relay(b, a, &p.there) })
		p.running.Go(func() { p.relay(a, b, &p.back) })
	}
}

func (p *proxy) relay(to, from *net.TCPConn, shut *bool) {
	defer func() {
		to.Close()
		from.Close()
		p.set(func() { delete(p.conns, to); delete(p.conns, from) })
	}()
	buffer := make([]byte, 16<<10)
	for {
		p.mu.Lock()
		for *shut && !p.closed && p.conns[from] {
			p.moved.Wait()
		}
		p.mu.Unlock()
		n, err := from.Read(buffer)
		p.mu.Lock()
		for *shut && !p.closed && p.conns[from] {
			p.moved.Wait()
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// again listens on an address that was used before.
func again(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
