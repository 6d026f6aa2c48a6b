package admission

import (
	"sync"
	"time"
)

// Rates bounds how many requests each user sends in a second. A user that was quiet for a second may send as many at once as
// are allowed in one. The zero Rates is ready for use. Its methods are safe for concurrent use.
type Rates struct {
	mu sync.Mutex
	// paid is, for each user, the time until which all requests so far are within the rate. Users whose time is more than a
	// second ago are as good as new, and are forgotten.
	paid  map[string]time.Time
	sweep int // the number of users at which those are forgotten next
}

// firstSweep is the number of users up to which none is forgotten.
const firstSweep = 1024

// Take counts a request, and reports false if the user sends more than perSecond, which is at least 0. A refused request does
// not count.
func (r *Rates) Take(user string, perSecond int64, now time.Time) bool {
	if perSecond <= 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paid == nil {
		r.paid, r.sweep = make(map[string]time.Time), firstSweep
	}
	paid, fresh := r.paid[user], now.Add(-time.Second)
	if paid.Before(fresh) {
		paid = fresh
	}
	if paid = paid.Add(time.Second / time.Duration(perSecond)); paid.After(now) {
		return false
	}
	r.paid[user] = paid
	if len(r.paid) >= r.sweep {
		for user, paid := range r.paid {
			if !paid.After(fresh) {
				delete(r.paid, user)
			}
		}
		r.sweep = max(firstSweep, 2*len(r.paid))
	}
	return true
}
