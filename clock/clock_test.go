package clock

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	anyReading  = rapid.OneOf(rapid.Int64(), rapid.Int64Range(-10, 10), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64}))
	anyInstant  = rapid.Custom(func(t *rapid.T) Instant { return Instant{anyReading.Draw(t, "raw"), anyReading.Draw(t, "boot")} })
	anyDuration = rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(anyReading.Draw(t, "duration")) })
	anyDrift    = rapid.Custom(func(t *rapid.T) Drift { return Drift(rapid.Uint32Range(0, uint32(MaxDrift)).Draw(t, "ppm")) })
)

// Rule T1: a program may rely on a deadline while both readings are before it. An end has come once both
// readings are strictly past it. So the relying side has always stopped when the waiting side continues.
func TestBeforeAndAfterNeedBothClocks(t *testing.T) {
	deadline := Instant{Raw: 10, Boot: 100}
	for _, test := range []struct {
		now           Instant
		before, after bool
	}{
		{Instant{9, 99}, true, false},
		{Instant{10, 99}, false, false},
		{Instant{9, 100}, false, false},
		{Instant{10, 100}, false, false},
		{Instant{11, 99}, false, false},
		{Instant{9, 101}, false, false},
		{Instant{11, 100}, false, false},
		{Instant{10, 101}, false, false},
		{Instant{11, 101}, false, true},
	} {
		if before, after := test.now.Before(deadline), test.now.After(deadline); before != test.before || after != test.after {
			t.Errorf("%v: before %v, after %v; want %v, %v", test.now, before, after, test.before, test.after)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		now, deadline := anyInstant.Draw(t, "now"), anyInstant.Draw(t, "deadline")
		if now.Before(deadline) && now.After(deadline) {
			t.Fatal("one instant is both before and after a deadline")
		}
		if now.Before(deadline) != (now.Remaining(deadline) > 0) || now.After(deadline) != (now.Until(deadline) < 0) {
			t.Fatal("the predicates disagree with Remaining and Until")
		}
	})
}

// exact returns d·num/den in exact arithmetic, rounded up or down and limited to the longest duration; 0 for
// d ≤ 0.
func exact(d time.Duration, num, den int64, up bool) time.Duration {
	if d <= 0 {
		return 0
	}
	product := new(big.Int).Mul(big.NewInt(int64(d)), big.NewInt(num))
	if up {
		product.Add(product, big.NewInt(den-1))
	}
	product.Div(product, big.NewInt(den))
	if !product.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(product.Int64())
}

// Rule T2: the four functions are exact, round against the caller, and saturate.
func TestDriftFunctionsRoundAgainstTheCaller(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drift, d := anyDrift.Draw(t, "drift"), anyDuration.Draw(t, "d")
		rho := int64(drift)
		for _, f := range []struct {
			name      string
			got, want time.Duration
		}{
			{"RelyRemote", drift.RelyRemote(d), exact(d, million-rho, million+rho, false)},
			{"WaitRemote", drift.WaitRemote(d), exact(d, million+rho, million-rho, true)},
			{"GrantPromise", drift.GrantPromise(d), exact(d, million+rho, million, true)},
			{"CountPromise", drift.CountPromise(d), exact(d, million-rho, million, false)},
		} {
			if f.got != f.want {
				t.Fatalf("%s(%v) at %d ppm = %v, want %v", f.name, d, drift, f.got, f.want)
			}
		}
	})
}

// Rule T2: a longer length gives a longer result, and a larger bound a more careful one. The relying side
// never outlasts the waiting side.
func TestMoreDriftIsMoreCareful(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyDuration.Draw(t, "a"), anyDuration.Draw(t, "b")
		less, more := anyDrift.Draw(t, "less"), anyDrift.Draw(t, "more")
		a, b, less, more = min(a, b), max(a, b), min(less, more), max(less, more)
		if less.RelyRemote(a) > less.RelyRemote(b) || less.WaitRemote(a) > less.WaitRemote(b) ||
			less.GrantPromise(a) > less.GrantPromise(b) || less.CountPromise(a) > less.CountPromise(b) {
			t.Fatal("a longer promise gave a shorter result")
		}
		if more.RelyRemote(b) > less.RelyRemote(b) || more.WaitRemote(b) < less.WaitRemote(b) ||
			more.GrantPromise(b) < less.GrantPromise(b) || more.CountPromise(b) > less.CountPromise(b) {
			t.Fatal("a larger drift bound gave a less careful result")
		}
		if b > 0 && (more.RelyRemote(b) > b || more.WaitRemote(b) < b || more.CountPromise(b) > b || more.GrantPromise(b) < b) {
			t.Fatal("a result is on the wrong side of its length")
		}
	})
}

func TestDriftAboveTheMaximumIsInvalid(t *testing.T) {
	if err := MaxDrift.Validate(); err != nil {
		t.Error(err)
	}
	if (MaxDrift + 1).Validate() == nil {
		t.Error("a drift above the maximum is valid")
	}
	beyond := Drift(2_000_000) // invalid, and still careful
	if beyond.RelyRemote(time.Second) != 0 || beyond.CountPromise(time.Second) != 0 {
		t.Error("an invalid drift leaves a length to rely on")
	}
}

// Arithmetic on instants saturates, so an instant beyond the range never comes.
func TestInstantSaturates(t *testing.T) {
	clamp := func(x *big.Int) int64 {
		switch {
		case x.Cmp(big.NewInt(math.MaxInt64)) > 0:
			return math.MaxInt64
		case x.Cmp(big.NewInt(math.MinInt64)) < 0:
			return math.MinInt64
		}
		return x.Int64()
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, d := anyInstant.Draw(t, "a"), anyInstant.Draw(t, "b"), anyDuration.Draw(t, "d")
		add := func(x int64) int64 { return clamp(new(big.Int).Add(big.NewInt(x), big.NewInt(int64(d)))) }
		sub := func(x, y int64) time.Duration {
			return time.Duration(clamp(new(big.Int).Sub(big.NewInt(x), big.NewInt(y))))
		}
		if got := a.Add(d); got != (Instant{add(a.Raw), add(a.Boot)}) {
			t.Fatalf("Add: %v", got)
		}
		raw, boot := sub(b.Raw, a.Raw), sub(b.Boot, a.Boot)
		if a.Until(b) != max(raw, boot) || a.Remaining(b) != min(raw, boot) || b.Elapsed(a) != max(0, min(raw, boot)) {
			t.Fatalf("Until %v, Remaining %v, Elapsed %v; want from %v and %v", a.Until(b), a.Remaining(b), b.Elapsed(a), raw, boot)
		}
	})
}

func TestManualAdvancesEachClock(t *testing.T) {
	m := NewManual(Instant{Raw: 1, Boot: 2})
	m.Advance(10)
	m.Suspend(100)
	if got := m.AdvanceBy(3, 4); got != (Instant{Raw: 14, Boot: 116}) || m.Now() != got {
		t.Errorf("got %v", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a clock ran backwards")
		}
	}()
	m.Advance(-1)
}

func TestUnknownDomainIsNeverTheSame(t *testing.T) {
	if UnknownDomain.Same(UnknownDomain) || !Domain("a").Same("a") || Domain("a").Same("b") || Domain("a").Same(UnknownDomain) {
		t.Error("Same compares domains wrongly")
	}
	if first, second := SystemDomain(), SystemDomain(); first != second {
		t.Errorf("the domain of this process changed from %q to %q", first, second)
	}
}

// The machine's clocks never run backwards, and both advance. The test assumes nothing about their rates.
func TestSystemClocksNeverRunBackwards(t *testing.T) {
	first := Now()
	before := first
	for range 10_000 {
		now := Now()
		if now.Raw < before.Raw || now.Boot < before.Boot {
			t.Fatalf("the clocks showed %v and then %v", before, now)
		}
		before = now
	}
	for !Now().After(first) { // both clocks advance
	}
}

// System shows the same clocks as Now.
func TestSystemReadsTheMachinesClocks(t *testing.T) {
	before, now, after := Now(), System{}.Now(), Now()
	if now.Raw < before.Raw || now.Boot < before.Boot || now.Raw > after.Raw || now.Boot > after.Boot {
		t.Errorf("System shows %v, the machine's clocks showed %v before and %v after", now, before, after)
	}
	if (System{}).Moved() != nil {
		t.Error("System has a channel for moves by hand")
	}
}
