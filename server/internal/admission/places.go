package admission

import (
	"sync/atomic"
)

// Places counts waiting claims by the identity of their clients. One identity may take half of the places that the
// others leave, so one always remains for another. If n identities want all places, each has one part of n+1. Its
// methods are safe for concurrent use.
type Places struct {
	limit   int64
	taken   atomic.Int64 // by all identities
	waiting atomic.Int64 // the part of taken whose client has an open stream or call
	shares  Counted[Identity, atomic.Int64]
}

// NewPlaces returns most free places.
func NewPlaces(most int) *Places { return &Places{limit: int64(most)} }

// Taken returns the number of taken places.
func (p *Places) Taken() int64 { return p.taken.Load() }

// Waiting returns the number of places taken by claims whose client has an open stream or call.
func (p *Places) Waiting() int64 { return p.waiting.Load() }

// Share counts what one stream or call takes of the places. All shares of an identity count together.
type Share struct {
	places   *Places
	identity Identity
	taken    *atomic.Int64 // by all shares of identity
	leave    func()
}

// Join returns a share for an identity. The caller must call Leave after it has released its places.
func (p *Places) Join(who Identity) *Share {
	taken, leave := p.shares.Join(who)
	return &Share{places: p, identity: who, taken: taken, leave: leave}
}

// Leave ends the use of the share.
func (s *Share) Leave() { s.leave() }

// Take takes a place for a waiting claim. It returns [ErrNoPlaces] or [ErrShareTaken] if there is none.
func (s *Share) Take() error {
	most, all, own := s.places.limit, s.places.taken.Add(1), s.taken.Add(1)
	others := all - own
	var err error
	switch {
	case all > most:
		err = ErrNoPlaces
	case own > max(1, (most-others+1)/2):
		err = ErrShareTaken
	}
	if err != nil {
		s.add(-1)
		return err
	}
	s.places.waiting.Add(1)
	return nil
}

// Release frees n places that Take has taken.
func (s *Share) Release(n int) {
	s.add(-int64(n))
	s.places.waiting.Add(-int64(n))
}

// Keep takes a place, regardless of bounds, for a claim whose client has no open stream. The place outlives the share.
// The caller must call free once.
func (s *Share) Keep() (free func()) {
	kept := s.places.Join(s.identity)
	kept.add(1)
	return func() {
		kept.add(-1)
		kept.Leave()
	}
}

func (s *Share) add(n int64) {
	s.taken.Add(n)
	s.places.taken.Add(n)
}
