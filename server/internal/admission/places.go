package admission

import (
	"sync/atomic"
)

// Places counts the claims that wait, by the identity of their clients. One identity may take half of the places that
// the others leave, so that there is always one for another: of n identities that want all, each has one of n+1 parts.
type Places struct {
	most    int64
	taken   atomic.Int64 // by all identities
	waiting atomic.Int64 // of those, the ones of claims whose client listens
	shares  Counted[Identity, atomic.Int64]
}

// NewPlaces returns so many places, all of them free.
func NewPlaces(most int) *Places { return &Places{most: int64(most)} }

// Taken returns how many places are taken.
func (p *Places) Taken() int64 { return p.taken.Load() }

// Waiting returns how many places are taken by claims whose client listens.
func (p *Places) Waiting() int64 { return p.waiting.Load() }

// Share is what one identity has taken of the places. Every stream or call has a Share of its own, and those of one
// identity count together.
type Share struct {
	places *Places
	who    Identity
	taken  *atomic.Int64 // by all shares of who
	leave  func()
}

// Join returns a share of an identity. The caller must leave it when it no longer takes or gives places.
func (p *Places) Join(who Identity) *Share {
	taken, leave := p.shares.Join(who)
	return &Share{places: p, who: who, taken: taken, leave: leave}
}

// Leave ends the use of the share.
func (s *Share) Leave() { s.leave() }

// Take takes a place for a claim that waits, or says why there is none: [ErrNoPlaces] or [ErrShareTaken].
func (s *Share) Take() error {
	most, all, own := s.places.most, s.places.taken.Add(1), s.taken.Add(1)
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

// Give frees n places that Take has taken.
func (s *Share) Give(n int) {
	s.add(-int64(n))
	s.places.waiting.Add(-int64(n))
}

// Keep takes a place for a claim whose client no longer listens, whatever the bound. It outlives the share: the caller
// must call free, once.
func (s *Share) Keep() (free func()) {
	kept := s.places.Join(s.who)
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
