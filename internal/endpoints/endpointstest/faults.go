package endpointstest

import (
	"context"
	"io"
	"maps"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// Fault is what may become of a request.
type Fault int

// What may become of one.
const (
	Pass   Fault = iota
	Lose         // it is done, and the answer is lost
	Unsent       // it never leaves
)

// Faults decides about requests, by their method and content. It stands on the client's side, where what
// was sent can be told from what was not.
type Faults struct {
	mu     sync.Mutex
	decide func(method string, req any) Fault // nil lets all pass
	calls  map[string]int
	answer func(method string, msg any) // may change what comes on streams
	send   func(method string, msg any) error
	old    map[string]bool // methods that the server is to lack
}

// Set has requests decided about from now on, and counted from zero; nil lets all pass.
func (f *Faults) Set(decide func(method string, req any) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide, f.calls = decide, nil
}

// Answers sets what may change what comes on streams.
func (f *Faults) Answers(change func(method string, msg any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = change
}

// Sends sets what may refuse what is sent on streams.
func (f *Faults) Sends(refuse func(method string, msg any) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.send = refuse
}

// Lacks has the server answer to a method as one that does not know it.
func (f *Faults) Lacks(method string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = map[string]bool{method: true}
}

func (f *Faults) isLacking(method string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.old[method]
}

func (f *Faults) judge(method string, req any) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	f.calls[method]++
	if f.decide == nil {
		return Pass
	}
	return f.decide(method, req)
}

// Calls returns how often each method was asked for since Set.
func (f *Faults) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// Options put it between a client and its connections.
func (f *Faults) Options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(f.unary), grpc.WithChainStreamInterceptor(f.stream)}
}

var (
	errLost   = status.Error(codes.Unavailable, "error reading from server: EOF")
	errUnsent = status.Error(codes.Unavailable, "connection error: refused")
)

func (f *Faults) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch f.judge(method, req) {
	case Unsent:
		return errUnsent
	case Lose:
		_ = invoke(ctx, method, req, reply, cc, opts...)
		return errLost
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (f *Faults) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	what := f.judge(method, nil)
	if what == Unsent {
		return nil, errUnsent
	}
	called := method
	if f.isLacking(method) {
		called += "OfTheFuture"
	}
	s, err := open(ctx, desc, cc, called, opts...)
	if err != nil {
		return nil, err
	}
	return &faultyStream{ClientStream: s, f: f, method: method, what: what}, nil
}

type faultyStream struct {
	grpc.ClientStream
	f      *Faults
	method string
	what   Fault
	lost   atomic.Bool // what comes next
}

// judge decides about what a message asks for, if it is one of many claims and releases: each is decided about
// as if it were a request by a method of its own. One that is not sent keeps the others from it.
func (s *faultyStream) judge(m any) Fault {
	what := Pass
	if r, ok := m.(*leasekeeperv1.HoldRequest); ok {
		for _, claim := range r.Claims {
			what = max(what, s.f.judge(leasekeeperv1.Leasekeeper_Acquire_FullMethodName, claim))
		}
		for _, release := range r.Releases {
			what = max(what, s.f.judge(leasekeeperv1.Leasekeeper_Release_FullMethodName, release))
		}
	}
	return what
}

func (s *faultyStream) SendMsg(m any) error {
	switch s.judge(m) {
	case Unsent:
		return errUnsent
	case Lose:
		s.lost.Store(true)
	}
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
	if s.what == Lose || s.lost.Load() {
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
