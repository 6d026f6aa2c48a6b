package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

const (
	// slowRoundTrip is the time of a small read from which a store is slow.
	slowRoundTrip = 100 * time.Millisecond
	// farClocks is the difference of two wall clocks from which people are confused.
	farClocks = time.Second
)

// checkStore checks a store, and changes nothing in it.
func checkStore(ctx context.Context, rawURL string, now time.Time) []Check {
	if store.IsServer(rawURL) {
		s, err := store.ParseServers(rawURL)
		if err != nil {
			return []Check{bad(Fail, "store", "the URL cannot be used", "%v", store.WithoutPrefix(err))}
		}
		return servers{s}.examine(ctx, now)
	}
	found, err := backend.Inspect(ctx, rawURL)
	switch {
	case errors.Is(err, backend.ErrUnsupported):
		return []Check{skipped("store", "%v", store.WithoutPrefix(err))}
	case err != nil:
		return []Check{bad(Fail, "store", "it cannot be used", "%v", store.WithoutPrefix(err))}
	}
	return judgeInspection(found)
}

// judgeInspection judges what was found out about a database.
func judgeInspection(i backend.Inspection) []Check {
	checks := []Check{good("store", "%s", i.Server), judgeRoundTrip(i.RoundTrip)}
	if i.Newest > 0 {
		checks = append(checks, judgeSchema(i.Schema, i.Newest))
	}
	for _, s := range i.Settings {
		found := s.Value
		switch {
		case s.Fix == "":
			checks = append(checks, good(s.Name, "%s", found))
		case s.Accepted:
			checks = append(checks, bad(Warn, s.Name, found+", accepted in the URL", "%s", s.Fix))
		default:
			checks = append(checks, bad(Fail, s.Name, found, "%s", s.Fix))
		}
	}
	for _, text := range i.Cautions {
		checks = append(checks, bad(Warn, "caution", "the store warns", "%s", text))
	}
	if i.HasClock {
		checks = append(checks, judgeStoreClock(i.Clock, i.RoundTrip))
	}
	return checks
}

func judgeRoundTrip(d time.Duration) Check {
	if d > slowRoundTrip {
		return bad(Warn, "round trip", brief(d), "use a database nearer to this machine, or longer TTLs: each claim and each renewal waits for a few of these")
	}
	return good("round trip", "%s", brief(d))
}

// judgeSchema judges the version of a store's tables; 0 means that there are none.
func judgeSchema(version, newest int) Check {
	const name = "schema"
	found := fmt.Sprintf("version %d; this program knows version %d", version, newest)
	switch {
	case version == 0:
		return good(name, "no tables yet: the first claim creates them")
	case version > newest:
		return bad(Fail, name, found, "use a newer leasekeeper")
	case version < newest:
		return bad(Fail, name, found, "use the leasekeeper that made the tables, or another ?prefix= in the URL")
	}
	return good(name, "%s", found)
}

// judgeStoreClock reports how far the wall clocks of the database and of this machine differ. No lease depends on it.
func judgeStoreClock(ahead, bound time.Duration) Check {
	const name = "clock of the store"
	found := fmt.Sprintf("%s ahead of this machine (±%s)", brief(ahead), brief(bound))
	if ahead < 0 {
		found = fmt.Sprintf("%s behind this machine (±%s)", brief(-ahead), brief(bound))
	}
	if ahead.Abs()-bound > farClocks {
		return bad(Warn, name, found, "start a time service on both machines; leases do not depend on it, but times in histories do")
	}
	return good(name, "%s; leases do not depend on it", found)
}
