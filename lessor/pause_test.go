package lessor

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Rule T5: a driver that is two ticks late by either clock concludes that its process was paused. It waits
// for renewals before it decides ends. The test stops the goroutine and calls step itself.
func TestDriverNoticesPause(t *testing.T) {
	for _, test := range []struct {
		raw, boot time.Duration
		paused    bool
	}{
		{0, 0, false},
		{DefaultMaxSleep, DefaultMaxSleep, false},
		{DefaultMaxSleep + 2*DefaultTick - 1, 0, false},
		{DefaultMaxSleep + 2*DefaultTick, 0, true},
		{0, DefaultMaxSleep + 2*DefaultTick, true}, // the machine slept
	} {
		var clocks clock.Manual
		d := NewDriver(DriverConfig{Now: func() clock.Instant { return clock.Instant{} }})
		d.Stop()
		d.config.Now = clocks.Now
		d.Promote(0)
		if _, err := d.Grant(1, 5); err != nil {
			t.Fatal(err)
		}
		d.step()
		clocks.AdvanceBy(test.raw, test.boot)
		if got := d.wasPaused(); got != test.paused {
			t.Errorf("raw %v, boot %v: wasPaused = %v", test.raw, test.boot, got)
		}
		d.step()
		if d.wasPaused() {
			t.Error("still paused after a step")
		}
	}
}

// The driver does not offer a lease that was revoked after the decision. Demote takes back what was offered
// before.
func TestDriverWithdrawsOffersOnRevokeAndDemote(t *testing.T) {
	var clocks clock.Manual
	d := NewDriver(DriverConfig{Now: func() clock.Instant { return clock.Instant{} }})
	d.Stop()
	d.config.Now = clocks.Now
	d.Promote(0)
	for id := ID(1); id <= 2; id++ {
		if _, err := d.Grant(id, 5); err != nil {
			t.Fatal(err)
		}
	}
	clocks.Advance(6 * time.Second)
	offer, demotions, _ := d.step()
	if len(offer) != 2 {
		t.Fatalf("the driver offered %d leases", len(offer))
	}
	if err := d.Revoke(1); err != nil {
		t.Fatal(err)
	}
	if offer, _, _ = d.step(); len(offer) != 1 || offer[0].ID != 2 {
		t.Fatalf("the driver offered %v", offer)
	}
	// The driver is demoted between the offer and the delivery, so it takes the offer back.
	d.Demote()
	d.expired <- offer
	d.noteDelivery(demotions)
	if len(d.expired) != 0 || len(d.delivered) != 0 {
		t.Error("a batch from before Demote is left in the channel")
	}
}
