package httpfence

import (
	"fmt"
	"net/http"

	"github.com/leasekeeper/leasekeeper/fence"
)

const (
	// Header holds the fencing token of a request: one decimal number from 1 to 18446744073709551615.
	Header = "Fencing-Token"
	// HighestHeader is in the answer to a request with a stale token. It holds the highest token that the server has seen.
	HighestHeader = "Fencing-Token-Highest"
)

// TokenOf reads the fencing token from the header of a request. Without a token it returns 0 and no error. It
// returns [fence.ErrInvalid] if the token is malformed, or given more than once: the server cannot know which
// one is meant.
func TokenOf(h http.Header) (fence.Token, error) {
	values := h.Values(Header)
	switch len(values) {
	case 0:
		return 0, nil
	case 1:
		t, err := fence.ParseToken(values[0])
		if err != nil {
			return 0, fmt.Errorf("header %s: %w", Header, err)
		}
		return t, nil
	}
	return 0, fmt.Errorf("header %s: %w: it is given %d times: send it once", Header, fence.ErrInvalid, len(values))
}
