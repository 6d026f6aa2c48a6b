package remote

import (
	"math"
	"time"
)

// moment is a time, as the duration since the process loaded this package. Reading it takes half the time of time.Now, which
// also reads the time of day.
type moment time.Duration

// noMoment is before all other moments.
const noMoment moment = math.MinInt64

var loaded = time.Now()

func now() moment { return moment(time.Since(loaded)) }

// add returns the moment d later, or the last moment if that is beyond it.
func (m moment) add(d time.Duration) moment {
	if sum := m + moment(d); d < 0 || sum >= m {
		return sum
	}
	return math.MaxInt64
}

func (m moment) sub(earlier moment) time.Duration { return time.Duration(m - earlier) }
