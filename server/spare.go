package server

import (
	"context"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// spareRoom is memory for the large responses of one watch stream, which are smaller without it. It implements
// [keyspace.Room]. One goroutine at a time uses it.
type spareRoom struct {
	account *account
	share   int64 // bytes of memory that a byte of a response takes
	taken   int64
}

// spareRoom returns the room of a stream. The caller calls release when the stream has ended.
func (s *Server) spareRoom(ctx context.Context) (room keyspace.Room, release func()) {
	r := &spareRoom{account: s.accountOf(ctx), share: 1}
	if s.jsonRequest(ctx) != nil {
		r.share = answerShare
	}
	return r, func() { r.Give(int(r.taken / r.share)) }
}

// Take implements [keyspace.Room].
func (r *spareRoom) Take(n int) error {
	if err := r.account.takeSpare(answerBytes, r.share*int64(n)); err != nil {
		return err
	}
	r.taken += r.share * int64(n)
	return nil
}

// Give implements [keyspace.Room].
func (r *spareRoom) Give(n int) {
	r.account.release(answerBytes, r.share*int64(n))
	r.taken -= r.share * int64(n)
}
