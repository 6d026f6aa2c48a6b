package fence

import "errors"

// Token is a fencing token: strictly increasing over successive holders of one name, for ever. Zero is no
// token.
type Token uint64

// ErrStale says that a write carried the token of a holder who has been succeeded. It must not be repeated:
// whoever gets it has lost its lease.
var ErrStale = errors.New("stale fencing token")
