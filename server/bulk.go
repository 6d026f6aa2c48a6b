package server

import (
	"context"
	"runtime"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// largeAnswer and largeMessage are the sizes in bytes from which encoding is bulk work: of an answer, and of a stream's
// message. The second is lower because one change of a key can go to any number of watchers.
const (
	largeAnswer  = 64 << 10
	largeMessage = 4 << 10
)

// encodingTurn makes the encoding of large messages take turns with other bulk work.
type encodingTurn struct {
	ctx  context.Context // of the request
	bulk *keyspace.Turns
	from int // the size in bytes from which a message is large
}

// take waits for a turn if a message of size bytes is large. The caller must call give when the message is encoded.
func (e *encodingTurn) take(size int) (give func(), err error) {
	if e == nil || size < e.from {
		return func() {}, nil
	}
	return keyspace.TakeTurn(keyspace.InTurn(e.ctx, e.bulk, string(admission.IdentityOf(e.ctx))))
}

// newBulk returns the turns of bulk work. Bulk work is reading history for watchers, ranges and transactions over any
// number of keys, hashes, and encoding large messages. It leaves half of the processors to everything else, such as
// renewals and claims.
func newBulk() *keyspace.Turns { return keyspace.NewTurns(runtime.GOMAXPROCS(0) / 2) }
