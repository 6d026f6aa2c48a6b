package webconsole

import (
	"time"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// renewals are those that a leader has acknowledged since its process started, as it reported them. The zero value means that no
// leader has reported any.
type renewals struct {
	leader uint64 // the id of the member
	count  uint64
	at     clock.Instant
}

// renewalsOf returns the renewals that a leader reports.
func renewalsOf(leader *leasekeeperv1.Member, at clock.Instant) renewals {
	if leader.Renewals == nil {
		return renewals{}
	}
	return renewals{leader.Id, *leader.Renewals, at}
}

// since returns how many renewals one leader has acknowledged between two reports, and the time between them. The time is 0 if
// the reports do not tell: after another member took the lead, after the process started again, and after a gap.
func (r renewals) since(before renewals) (count uint64, d time.Duration) {
	d = r.at.Elapsed(before.at)
	if r.leader == 0 || r.leader != before.leader || r.count < before.count || d > plotSlot {
		return 0, 0
	}
	return r.count - before.count, d
}

// countRenewals adds what a leader has acknowledged between two reports to the slot of the later one.
func (r *rings) countRenewals(before, after renewals) {
	if count, d := after.since(before); d > 0 {
		r.renewed.Add(after.at, float64(count))
		r.observed.Add(after.at, d.Seconds())
	}
}

// renewalsPerSecond returns the rate of each slot, for the part of the slot that was observed. The rate is missing if that is
// less than half of the slot.
func (r *rings) renewalsPerSecond(now clock.Instant) []float64 {
	rates, seconds := r.renewed.Values(now), r.observed.Values(now)
	for i := range rates {
		if survey.IsMissing(seconds[i]) || seconds[i] < plotSlot.Seconds()/2 {
			rates[i] = survey.Missing
		} else {
			rates[i] /= seconds[i]
		}
	}
	return rates
}
