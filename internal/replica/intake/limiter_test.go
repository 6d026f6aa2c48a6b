package intake

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// The longer it takes to end leases, the longer is the rest, within bounds.
func TestRestFollowsHowLongExpiriesTake(t *testing.T) {
	for _, test := range []struct {
		leases     int
		took, rest time.Duration
	}{
		{128, 0, 128 * MinRest},
		{128, 128 * MinRest / restFactor / 2, 128 * MinRest},
		{100, time.Millisecond, restFactor * time.Millisecond},
		{100, time.Hour, 100 * maxRest},
		{1, time.Millisecond, maxRest},
	} {
		now := clock.Instant{Raw: int64(time.Hour), Boot: int64(3 * time.Hour)} // the origins of the two clocks differ
		l := new(limiter)
		l.clientWrote(now)
		l.applied(now, test.leases)
		if !l.measuring() {
			t.Fatal("the time of the ends is not measured")
		}
		now = now.Add(test.took)
		l.measure(now)
		l.clientWrote(now)
		l.decided(now, test.leases)
		if rest := l.delay(now); l.measuring() || rest != test.rest {
			t.Errorf("after %v for %d leases the rest is %v, not %v", test.took, test.leases, rest, test.rest)
		}
	}
}

// What was not used does not add up: after a long time without ends no more of them end at once than shortly after one.
func TestUnusedExpiriesDoNotAddUp(t *testing.T) {
	now := clock.Instant{Raw: int64(time.Hour), Boot: int64(3 * time.Hour)}
	l := new(limiter)
	for range 1000 {
		now = now.Add(time.Second)
		l.proposed(now, 5)
	}
	l.decided(now, MaxExpiries)
	if rest, want := l.delay(now), (MaxExpiries-5)*MinRest; rest != want {
		t.Errorf("the rest is %v, not %v", rest, want)
	}
	if room := l.room(now); room != MaxExpiries {
		t.Errorf("there is room for %d leases", room)
	}
	if l.delay(now.Add(Lull)) > 0 {
		t.Error("leases rest though nobody writes")
	}
}
