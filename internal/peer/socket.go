package peer

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// A Socket connects a node with a transport. The node starts before the transport, because the transport sends the incarnation
// of the node's data directory to other members. Until [Socket.Connect] the Socket drops messages, and the node sends them
// again. The zero value is ready to use. Its methods are safe for concurrent use.
type Socket struct {
	transport atomic.Pointer[Transport] // nil until Connect

	mu      sync.Mutex      // orders the lists that the transport receives
	members []roster.Member // the newest list
	listed  bool            // there was a list
}

// Connect connects the transport. From now on it receives the lists of members, beginning with the newest one.
func (s *Socket) Connect(t *Transport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed {
		t.SetMembers(s.members)
	}
	s.transport.Store(t)
}

// SetMembers passes on a list of members.
func (s *Socket) SetMembers(members []roster.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members, s.listed = members, true
	if t := s.transport.Load(); t != nil {
		t.SetMembers(members)
	}
}

// Members returns the newest list of members.
func (s *Socket) Members() []roster.Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members
}

// Send is that of the transport.
func (s *Socket) Send(to uint64, urgent bool, message []byte) {
	if t := s.transport.Load(); t != nil {
		t.Send(to, urgent, message)
	}
}

var errNotConnected = errors.New("this member is not connected to the other members yet: try again in a moment")

// Ship is that of the transport.
func (s *Socket) Ship(ctx context.Context, to uint64, message []byte, state io.Reader) error {
	t := s.transport.Load()
	if t == nil {
		return errNotConnected
	}
	return t.Ship(ctx, to, message, state)
}
