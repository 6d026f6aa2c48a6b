package clock_test

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

func ExampleInstant() {
	clocks := clock.NewManual(clock.Instant{})
	deadline := clocks.Now().Add(10 * time.Second)

	clocks.Advance(9 * time.Second)
	fmt.Println("rely:", clocks.Now().Before(deadline), "over:", clocks.Now().After(deadline))

	clocks.Suspend(time.Minute) // the machine sleeps: only the boot clock counts it
	fmt.Println("rely:", clocks.Now().Before(deadline), "over:", clocks.Now().After(deadline))

	clocks.Advance(2 * time.Second)
	fmt.Println("rely:", clocks.Now().Before(deadline), "over:", clocks.Now().After(deadline))
	// Output:
	// rely: true over: false
	// rely: false over: false
	// rely: false over: true
}

func ExampleDrift() {
	drift := clock.DefaultDrift
	fmt.Println("a holder may rely on another machine's 10s for", drift.RelyRemote(10*time.Second))
	fmt.Println("to see another machine's 10s pass, wait", drift.WaitRemote(10*time.Second))
	fmt.Println("to promise 10s of real time, keep it", drift.GrantPromise(10*time.Second))
	fmt.Println("on a promise of 10s of real time, count", drift.CountPromise(10*time.Second))
	// Output:
	// a holder may rely on another machine's 10s for 9.801980198s
	// to see another machine's 10s pass, wait 10.202020203s
	// to promise 10s of real time, keep it 10.1s
	// on a promise of 10s of real time, count 9.9s
}

func ExampleManual() {
	clocks := clock.NewManual(clock.Instant{})
	clocks.Advance(time.Second)
	clocks.AdvanceBy(time.Second, 1100*time.Millisecond) // the boot clock is slewed
	fmt.Println(clocks.Now())
	// Output: raw 2s boot 2.1s
}

func ExampleDomain() {
	fmt.Println(clock.UnknownDomain.Same(clock.UnknownDomain))
	// Output: false
}

func ExampleNow() {
	start := clock.Now()
	fmt.Println(clock.Now().Elapsed(start) >= 0)
	// Output: true
}
