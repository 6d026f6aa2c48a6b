package sqlstore

import (
	"fmt"
	"net/url"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Settings takes the parameters for a store from the query of a URL:
//
//	ns        the namespace
//	prefix    what the names of the tables begin with
//	schema    the schema of the tables
//	clock     whose clock judges: "writer", or "store" for store-clock mode
//	accept    "loss" accepts that a crash may undo acknowledged writes
//
// They override c. Settings leaves all others in the query.
func Settings(query url.Values, c Config) (Config, error) {
	for key, values := range query {
		value, err := values[0], error(nil)
		switch key {
		case "ns":
			c.Namespace = value
		case "prefix":
			c.Prefix = value
		case "schema":
			c.Schema = value
		case "clock":
			c.StoreClock = value == modeStore
			err = oneOf(value, modeWriter, modeStore)
		case "accept":
			c.AcceptLoss = true
			err = oneOf(value, "loss")
		default:
			continue
		}
		if err == nil && len(values) > 1 {
			err = fmt.Errorf("it is given %d times: give it once", len(values))
		}
		if err == nil && value == "" {
			err = fmt.Errorf("it is empty")
		}
		if err != nil {
			return c, fmt.Errorf("%w: %s in the URL: %w", backend.ErrInvalid, key, err)
		}
		delete(query, key)
	}
	return c, nil
}

func oneOf(value string, known ...string) error {
	for _, k := range known {
		if value == k {
			return nil
		}
	}
	return fmt.Errorf("it must be one of %q, not %q", known, value)
}
