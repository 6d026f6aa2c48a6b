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

// Fault is a network fault of one request.
type Fault int

// The faults.
const (
	Pass   Fault = iota
	Lose         // the server carries it out, and the answer is lost
	Unsent       // it never leaves the client
)

// Faults injects faults into the requests of a client, by method and content. It acts on the client's side, where it knows
// whether a request was sent.
type Faults struct {
	mu     sync.Mutex
	decide func(method string, req any) Fault // nil passes every request
	calls  map[string]int
	answer func(method string, msg any) // may change messages received on streams
	send   func(method string, msg any) error
	old    map[string]bool // methods that the server seems not to have
}

// Set sets what decides about requests, and resets Calls. nil passes every request.
func (f *Faults) Set(decide func(method string, req any) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide, f.calls = decide, nil
}

// Answers sets a function that may change messages received on streams.
func (f *Faults) Answers(change func(method string, msg any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = change
}

// Sends sets a function that may refuse messages sent on streams.
func (f *Faults) Sends(refuse func(method string, msg any) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.send = refuse
}

// Lacks makes the server answer a method as one that does not have it.
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

// Calls returns the number of calls of each method since Set.
func (f *Faults) Calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// Options returns the dial options that inject the faults.
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
	lost   atomic.Bool // the next answer is lost
}

// judge decides about a message of claims and releases. Each of them counts as a call of its own method, and the message
// receives the worst fault of all.
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
