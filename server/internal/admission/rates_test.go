package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRatesFollowABucket compares the rate with a bucket that is filled drop by drop.
func TestRatesFollowABucket(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		perSecond := int64(1 + random.IntN(50))
		drop := time.Second / time.Duration(perSecond)
		full := time.Duration(perSecond) * drop
		var r Rates
		now := time.Unix(1000, 0)
		water, at := full, now // the bucket, which is empty when it has less than a drop
		for step := range 2000 {
			now = now.Add(time.Duration(random.Int64N(int64(2*drop)/int64(1+random.IntN(5)) + 1)))
			water, at = min(time.Second, water+now.Sub(at)), now
			want := water >= drop
			if want {
				water -= drop
			}
			if got := r.Take("u", perSecond, now); got != want {
				t.Fatalf("seed %d, step %d: %v, and the bucket has %v of drops of %v", seed, step, got, water, drop)
			}
			if !r.Take(fmt.Sprint(step), 1, now) {
				t.Fatalf("seed %d, step %d: another user is refused", seed, step)
			}
		}
		if len(r.paid) > 2100 {
			t.Errorf("%d users are remembered", len(r.paid))
		}
	}
}

// Quiet users are forgotten.
func TestRatesForgetQuietUsers(t *testing.T) {
	var r Rates
	now := time.Unix(1000, 0)
	for i := range 100 * firstSweep {
		r.Take(fmt.Sprint(i), 10, now)
		now = now.Add(10 * time.Millisecond)
	}
	if len(r.paid) > firstSweep {
		t.Errorf("%d users are remembered", len(r.paid))
	}
}

// A rate of 0 refuses everything.
func TestRateOfZeroRefuses(t *testing.T) {
	if new(Rates).Take("u", 0, time.Unix(1000, 0)) {
		t.Error("a request is allowed")
	}
}
