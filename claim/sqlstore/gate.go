package sqlstore

import (
	"encoding/hex"
	"fmt"
	"math"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Gate returns a statement, and its arguments, for a transaction that must commit only if a lease of this store
// is still held. The statement finds or changes one row if it is held, and none if it is lost.
func (s *Store) Gate(l *claim.Lease) (statement string, args []any, err error) {
	id, token := l.Incarnation(), l.Token()
	if token == 0 || token > math.MaxInt64 {
		return "", nil, fmt.Errorf("%s: %w: the lease of %s has not been acquired", s.Scheme(), backend.ErrInvalid, l.Name())
	}
	return s.statements.gate, []any{s.config.Namespace, l.Name(), int64(token), l.Holder(), hex.EncodeToString(id[:])}, nil
}

// Owners returns a query that detects changes of owners. Its only argument is a namespace. Its only result is a
// text that changes whenever the owner of one of the namespace's names does. It reads the whole table.
func (s *Store) Owners() string { return s.statements.owners }
