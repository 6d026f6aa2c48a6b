package record

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Unowned is a lease that no user owns.
type Unowned struct {
	ID      lessor.ID
	TTL     time.Duration
	Claimed bool   // a claim of a name made it
	Name    string // the claimed name
}

// UnownedPage is a part of the leases that no user owns, by ID.
type UnownedPage struct {
	Leases []Unowned
	Last   lessor.ID // the last lease that the page covers, owned or not
	More   bool      // leases may follow Last
}

// UnownedLeases returns the next page after a lease; nil means the first page. It reads at most scan records, which is at least
// 1, so a page may have fewer leases than limit. It does not see records in a [Buffer].
func UnownedLeases(db pebble.Reader, after *lessor.ID, limit, scan int) (page UnownedPage, err error) {
	bounds := Family(FamilyLease)
	if after != nil {
		page.Last = *after
		bounds.LowerBound = append(LeaseKey(*after), 0)
	}
	it, err := db.NewIter(bounds)
	if err != nil {
		return UnownedPage{}, err
	}
	for valid := it.First(); valid; valid = it.Next() {
		if len(page.Leases) >= limit || scan == 0 {
			page.More = true
			break
		}
		scan--
		m := new(logpb.Lease)
		if err := decode(it, m); err != nil {
			return UnownedPage{}, errors.Join(err, it.Close())
		}
		page.Last = lessor.ID(m.Id)
		if len(m.Creator) == 0 {
			page.Leases = append(page.Leases, Unowned{page.Last, time.Duration(m.TtlNs), m.Claimed, string(m.Name)})
		}
	}
	return page, errors.Join(it.Error(), it.Close())
}
