package httpfence

import (
	"fmt"
	"net/http"

	"github.com/leasekeeper/leasekeeper/fence"
)

const (
	// Header holds the fencing token of a request: one decimal number from 1 to 18446744073709551615.
	Header = "Fencing-Token"
	// HighestHeader holds, in the answer to a request with a stale token, the highest token seen.
	HighestHeader = "Fencing-Token-Highest"
)

// TokenOf reads the fencing token from the header of a request. Without one it returns 0 and no error. A
// token that is malformed, or given more than once, is [fence.ErrInvalid]: which of two is meant cannot be
// known.
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
