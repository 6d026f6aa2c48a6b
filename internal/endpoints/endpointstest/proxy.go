package endpointstest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards connections to a store. It can stall, as a network that drops packets, delay answers, and close connections.
type Proxy struct {
	t      testing.TB
	listen net.Listener
	to     string
	all    sync.WaitGroup

	mu      sync.Mutex
	stalled chan struct{} // closed when it forwards again; nil while it does
	only    bool          // new connections are not stalled
	conns   map[net.Conn]chan struct{}
	dials   int
	late    time.Duration // the delay of answers
}

// StartProxy starts a proxy for an address.
func StartProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	OK(t, err)
	p := &Proxy{t: t, listen: l, to: to, conns: make(map[net.Conn]chan struct{})}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.Resume()
		p.Cut()
		p.all.Wait()
	})
	return p
}

// Addr is the address that the proxy listens on.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

func (p *Proxy) accept() {
	for {
		in, err := p.listen.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.dials++
		var hold chan struct{}
		if !p.only {
			hold = p.stalled
		}
		p.conns[in], p.conns[out] = hold, hold
		p.mu.Unlock()
		p.all.Go(func() { p.carry(in, out) })
		p.all.Go(func() { p.carryLate(out, in) })
	}
}

func (p *Proxy) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		hold := p.conns[from]
		p.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// chunk is a part of an answer under way.
type chunk struct {
	due  time.Time
	data []byte
}

// carryLate forwards answers, and delays them.
func (p *Proxy) carryLate(from, to net.Conn) {
	defer from.Close()
	under := make(chan chunk, 1<<14)
	p.all.Go(func() {
		defer to.Close()
		for c := range under {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.data); err != nil {
				from.Close() // drops the rest
			}
		}
	})
	defer close(under)
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		p.mu.Lock()
		hold, late := p.conns[from], p.late
		p.mu.Unlock()
		if hold != nil {
			<-hold
		}
		if err != nil {
			return
		}
		under <- chunk{time.Now().Add(late), buffer[:n]}
	}
}

// Delay delays answers from now on.
func (p *Proxy) Delay(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = by
}

// Stall stops forwarding on the present connections, and on new ones unless only.
func (p *Proxy) Stall(only bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled, p.only = make(chan struct{}), only
	for c := range p.conns {
		p.conns[c] = p.stalled
	}
}

// Resume forwards again.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
	for c := range p.conns {
		p.conns[c] = nil
	}
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}

// Connections returns the number of connections that were made.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}
