package integration

import (
	"io"
	"net"
	"sync"
)

// bridge forwards connections from its address to a member. Its methods are safe for concurrent use.
type bridge struct {
	listener net.Listener
	target   string
	stopped  chan struct{}
	work     sync.WaitGroup // the goroutines

	mu     sync.Mutex
	pairs  map[*pair]bool // the open connections; guarded by mu
	resume chan struct{}  // closed unless new connections are paused; guarded by mu
}

// pair is a connection of a client and the one to the member.
type pair struct {
	client, member net.Conn
	ended          chan struct{} // closed when nothing is copied any more
}

func (p *pair) close() {
	p.client.Close()
	p.member.Close()
}

// newBridge forwards connections from an address to a target until it is closed.
func newBridge(address, target string) (*bridge, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	b := &bridge{listener: listener, target: target, stopped: make(chan struct{}), pairs: make(map[*pair]bool), resume: make(chan struct{})}
	close(b.resume)
	b.work.Go(b.accept)
	return b, nil
}

func (b *bridge) address() string { return b.listener.Addr().String() }

// Close closes all connections and accepts no more.
func (b *bridge) Close() {
	close(b.stopped)
	b.listener.Close()
	b.DropConnections()
	b.work.Wait()
}

// DropConnections closes the connections that are open, and returns when nothing is forwarded on them.
func (b *bridge) DropConnections() {
	b.mu.Lock()
	var open []*pair
	for p := range b.pairs {
		open = append(open, p)
	}
	b.mu.Unlock()
	for _, p := range open {
		p.close()
	}
	for _, p := range open {
		<-p.ended
	}
}

// PauseConnections makes new connections wait for UnpauseConnections.
func (b *bridge) PauseConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resume = make(chan struct{})
}

// UnpauseConnections forwards the connections that wait. Connections are paused when it is called.
func (b *bridge) UnpauseConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.resume)
}

// accept forwards connections until the bridge is closed.
func (b *bridge) accept() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		resume := b.resume
		b.mu.Unlock()
		select {
		case <-resume:
		case <-b.stopped:
			client.Close()
			return
		}
		member, err := net.Dial("tcp", b.target)
		if err != nil {
			client.Close()
			continue
		}
		p := &pair{client: client, member: member, ended: make(chan struct{})}
		if !b.add(p) {
			p.close()
			return
		}
	}
}

// add forwards on a pair of connections, unless the bridge is closed.
func (b *bridge) add(p *pair) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.stopped:
		return false
	default:
	}
	b.pairs[p] = true
	b.work.Go(func() { b.forward(p) })
	return true
}

// forward copies between the two connections until either ends.
func (b *bridge) forward(p *pair) {
	var back sync.WaitGroup
	back.Go(func() {
		copyBytes(p.client, p.member)
		p.close()
	})
	copyBytes(p.member, p.client)
	p.close()
	back.Wait()
	b.mu.Lock()
	delete(b.pairs, p)
	b.mu.Unlock()
	close(p.ended)
}

// copyBytes copies until an error. It hides the types of the connections: between sockets, package net copies through pipes
// that it closes later in a goroutine of its own, which the suites take for a leak.
func copyBytes(to io.Writer, from io.Reader) {
	io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
}
