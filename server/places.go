package server

import (
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Why a claim does not get a place to wait. Neither says anything about the name.
var (
	errNoPlaces = errors.New("all places to wait are taken on this server, whatever the name: try again later, " +
		"or allow more with --max-requests")
	errShareTaken = errors.New("this client has as many claims waiting on this server as one client may: end some; " +
		"this says nothing about whether the name is free")
)

var (
	statusNoPlaces   = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+errNoPlaces.Error())
	statusShareTaken = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+errShareTaken.Error())
)

// Labels under which claims without a place are counted.
const (
	reasonPlaces = "too_many_waiting"
	reasonShare  = "share_of_waiting"
)

// places counts the claims that wait, by the identity of their clients. One identity may take half of the places that
// the others leave, so that there is always one for another: of n identities that want all, each has one of n+1 parts.
type places struct {
	taken atomic.Int64 // of all identities

	mu     sync.Mutex
	shares map[identity]*share
}

// share is what one identity has taken.
type share struct {
	places *places
	who    identity
	taken  atomic.Int64
	users  int // that may take or give; guarded by places.mu
}

// join returns the share of an identity. The caller must leave it when it neither takes nor gives anymore.
func (p *places) join(who identity) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shares == nil {
		p.shares = make(map[identity]*share)
	}
	s := p.shares[who]
	if s == nil {
		s = &share{places: p, who: who}
		p.shares[who] = s
	}
	s.users++
	return s
}

func (s *share) leave() {
	s.places.mu.Lock()
	defer s.places.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(s.places.shares, s.who)
	}
}

// take takes a place of those that there are at most.
func (s *share) take(most int) error {
	all, own := s.places.taken.Add(1), s.taken.Add(1)
	others := all - own
	var err error
	switch {
	case all > int64(most):
		err = errNoPlaces
	case own > max(1, (int64(most)-others+1)/2):
		err = errShareTaken
	}
	if err != nil {
		s.give(1)
	}
	return err
}

func (s *share) give(n int) {
	s.taken.Add(-int64(n))
	s.places.taken.Add(-int64(n))
}

// takePlace takes a place for a claim that waits on a stream, or call, of that share.
func (s *Server) takePlace(from *share) error {
	if err := from.take(s.cfg.MaxRequests); err != nil {
		return err
	}
	s.limits.waiting.Add(1)
	return nil
}

func (s *Server) givePlaces(from *share, n int) {
	from.give(n)
	s.limits.waiting.Add(-int64(n))
}
