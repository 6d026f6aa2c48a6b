package keepalive

import (
	"runtime"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// many returns a Renewer with n leases of 30 s, and its clocks.
func many(tb testing.TB, n int, c Config) (*Renewer, *clock.Manual) {
	tb.Helper()
	h, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	clocks := clock.NewManual(clock.Instant{}.Add(time.Hour))
	for range n {
		l, err := h.Claim(clocks.Now(), 30*time.Second)
		if err != nil {
			tb.Fatal(err)
		}
		h.Step(clocks.Now(), Granted{Lease: l, TTL: 30 * time.Second})
	}
	return h, clocks
}

// BenchmarkRenewHundredThousandLeases measures one renewal of all leases: the Step that sends the message, and the Step
// that has all answers.
func BenchmarkRenewHundredThousandLeases(b *testing.B) {
	const n = 100_000
	h, clocks := many(b, n, Config{})
	answers := make([]Answer, 0, n)
	b.ReportAllocs()
	for b.Loop() {
		clocks.Advance(10 * time.Second)
		for _, e := range h.Step(clocks.Now(), Wake{}) {
			r, ok := e.(Renew)
			if !ok {
				continue
			}
			answers = answers[:0]
			for _, l := range r.Leases {
				answers = append(answers, Answer{Lease: l, TTL: 30 * time.Second})
			}
			h.Step(clocks.Now(), Renewed{r.Number, answers})
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/lease")
	if stats := h.Stats(); stats.Lost > 0 || stats.Renewals < uint64(b.N)*n {
		b.Fatalf("%+v", stats)
	}
}

// BenchmarkValid measures Valid, which programs call before every act.
func BenchmarkValid(b *testing.B) {
	h, clocks := many(b, 100_000, Config{})
	now, l := clocks.Now(), handle(50_000, 1)
	for b.Loop() {
		if !h.Valid(now, l) {
			b.Fatal("not valid")
		}
	}
}

// A held lease takes at most 120 bytes, and 160 while its renewal is under way.
func TestLeaseTakesAboutAHundredBytes(t *testing.T) {
	const n = 100_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	h, clocks := many(t, n, Config{})
	held := float64(heap()-before) / n
	clocks.Advance(10 * time.Second)
	effects := len(h.Step(clocks.Now(), Wake{}))
	flight := float64(heap()-before) / n
	t.Logf("%.0f bytes for a lease that is held, %.0f while it is being renewed", held, flight)
	if held > 120 || flight > 160 {
		t.Errorf("%.0f and %.0f bytes for a lease", held, flight)
	}
	runtime.KeepAlive(h)
	runtime.KeepAlive(effects)
}
