package record

import (
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// LoadHoldOff returns the instant at which the hold-off of a restored member is over, or the zero Instant if the
// database has no record of one.
//
// The time counts from the first start with the record. LoadHoldOff then writes that instant into the record, so a
// restart does not begin again. After a restart of the machine the instant cannot be compared, and the time counts from
// when this member first ran since. A member that receives the state of another counts from the receipt.
func LoadHoldOff(db *pebble.DB, instants *Instants, now clock.Instant) (clock.Instant, error) {
	m := new(logpb.HoldOff)
	found, err := Load(db, KeyHoldOff, m)
	if err != nil || !found {
		return clock.Instant{}, err
	}
	length := time.Duration(m.DurationNs)
	if m.Began != nil {
		return instants.Decode(m.Began, m.Domain).Add(length), nil
	}
	batch := db.NewBatch()
	m.Began, m.Domain = instants.Encode(now)
	Put(batch, KeyHoldOff, m)
	return now.Add(length), batch.Commit(pebble.Sync)
}
