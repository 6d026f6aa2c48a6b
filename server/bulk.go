package server

import (
	"context"
	"runtime"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// largeAnswer and largeMessage are the sizes from which on it is bulk work to encode an answer, or a message of a stream: a
// change of one key is told to any number of watchers.
const (
	largeAnswer  = 64 << 10
	largeMessage = 4 << 10
)

// encodingTurn has large messages encoded in turn with other bulk work.
type encodingTurn struct {
	ctx  context.Context // of the request
	bulk *keyspace.Turns
	from int // the size from which on a message is large
}

// take waits for a turn if a message of so many bytes is large. The caller must give it back.
func (e *encodingTurn) take(size int) (give func(), err error) {
	if e == nil || size < e.from {
		return func() {}, nil
	}
	return keyspace.TakeTurn(keyspace.InTurn(e.ctx, e.bulk, string(admission.IdentityOf(e.ctx))))
}

// newBulk returns the turns of bulk work: reads of history for watchers, ranges of any number of keys, transactions with
// those, and encoding large messages. It leaves half
// of the processors to everything else, of which renewals and claims are.
func newBulk() *keyspace.Turns { return keyspace.NewTurns(runtime.GOMAXPROCS(0) / 2) }
