package remote_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// proxy stands between a client and a store. It can be made to carry nothing, in either direction, as a
// network that swallows packets, and to cut what is connected.
type proxy struct {
	t      testing.TB
	listen net.Listener
	to     string
	all    sync.WaitGroup

	mu      sync.Mutex
	stalled chan struct{} // closed when it carries again; nil while it does
	only    bool          // only connections that are there are stalled
	conns   map[net.Conn]chan struct{}
	dials   int
}

func startProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	p := &proxy{t: t, listen: l, to: to, conns: make(map[net.Conn]chan struct{})}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.resume()
		p.cut()
		p.all.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listen.Addr().String() }

func (p *proxy) accept() {
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
		p.all.Go(func() { p.carry(out, in) })
	}
}

func (p *proxy) carry(from, to net.Conn) {
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

// stall carries nothing any more: on the connections that are there, and on new ones unless only.
func (p *proxy) stall(only bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled, p.only = make(chan struct{}), only
	for c := range p.conns {
		p.conns[c] = p.stalled
	}
}

func (p *proxy) resume() {
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

// cut closes what is connected.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// fault is what may become of a request.
type fault int

const (
	pass   fault = iota
	lose         // it is done, and the answer is lost
	unsent       // it never leaves
)

// faults decides about requests, by their method and content. It stands on the client's side, where what
// was sent can be told from what was not.
type faults struct {
	mu     sync.Mutex
	decide func(method string, req any) fault // nil lets all pass
	calls  map[string]int
	answer func(method string, msg any) // may change what comes on streams
	send   func(method string, msg any) error
}

func (f *faults) set(decide func(method string, req any) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide, f.calls = decide, nil
}

// answers sets what may change what comes on streams, and sends what may refuse what is sent on them.
func (f *faults) answers(change func(method string, msg any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = change
}

func (f *faults) sends(refuse func(method string, msg any) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.send = refuse
}

func (f *faults) judge(method string, req any) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	f.calls[method]++
	if f.decide == nil {
		return pass
	}
	return f.decide(method, req)
}

func (f *faults) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(f.unary), grpc.WithChainStreamInterceptor(f.stream)}
}

var (
	errLost   = status.Error(codes.Unavailable, "error reading from server: EOF")
	errUnsent = status.Error(codes.Unavailable, "connection error: refused")
)

func (f *faults) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch f.judge(method, req) {
	case unsent:
		return errUnsent
	case lose:
		_ = invoke(ctx, method, req, reply, cc, opts...)
		return errLost
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (f *faults) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	what := f.judge(method, nil)
	if what == unsent {
		return nil, errUnsent
	}
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &faultyStream{ClientStream: s, f: f, method: method, what: what}, nil
}

type faultyStream struct {
	grpc.ClientStream
	f      *faults
	method string
	what   fault
}

func (s *faultyStream) SendMsg(m any) error {
	s.f.mu.Lock()
	send := s.f.send
	s.f.mu.Unlock()
	if send != nil {
		if err := send(s.method, m); err != nil {
			return err
		}
	}
	return s.ClientStream.SendMsg(m)
}

func (s *faultyStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	if s.what == lose {
		return io.ErrUnexpectedEOF
	}
	s.f.mu.Lock()
	answer := s.f.answer
	s.f.mu.Unlock()
	if answer != nil {
		answer(s.method, m)
	}
	return nil
}
