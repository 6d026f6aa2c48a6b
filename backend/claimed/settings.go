package claimed

import (
	"fmt"
	"net/url"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Settings takes the parameters for the backend on a store from the query of a URL, and leaves all others in
// it:
//
//	poll      how often a process that waits for a name asks for it, such as "250ms"
func Settings(query url.Values) ([]Option, error) {
	const key = "poll"
	values, given := query[key]
	if !given {
		return nil, nil
	}
	every, err := time.ParseDuration(values[0])
	if err == nil && len(values) > 1 {
		err = fmt.Errorf("it is given %d times: give it once", len(values))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s in the URL: %w", backend.ErrInvalid, key, err)
	}
	delete(query, key)
	return []Option{WithPoll(every)}, nil
}
