package lessor_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// A Lessor gets the commands of the log and the time from its caller.
func ExampleLessor() {
	l := lessor.New(lessor.Config{})
	clocks := clock.NewManual(clock.Instant{})
	const term = 1
	l.BeginLeadership(lessor.At(1, 0), clocks.Now()) // the leader's first entry
	l.Promote(0, clocks.Now(), term)

	l.Grant(7, 5*time.Second, lessor.At(2, 0), clocks.Now())
	l.Attach(7, []lessor.Item{{Key: "foo"}})

	clocks.Advance(4 * time.Second)
	ttl, err := l.Renew(7, clocks.Now())
	fmt.Println("renewed for", ttl, err)

	clocks.Advance(6 * time.Second)
	for _, expiry := range l.Due(clocks.Now(), lessor.At(2, 0)) {
		// Here the expiry is proposed, committed, and applied by every member.
		lease, ok := l.Expire(expiry, term)
		fmt.Println("expired", lease.ID, "with", lease.Items, "item:", ok)
	}
	// Output:
	// renewed for 5s <nil>
	// expired 7 with 1 item: true
}

// The primary checkpoints silent leases, so a successor does not count their TTL again from the start.
func ExampleLessor_SetCheckpointer() {
	l := lessor.New(lessor.Config{})
	l.SetCheckpointer(func(checkpoints []lessor.Checkpoint, cleared []lessor.Cleared) {
		for _, c := range checkpoints {
			fmt.Println("propose: lease", c.ID, "has", c.Remaining, "left")
		}
	})
	clocks := clock.NewManual(clock.Instant{})
	l.BeginLeadership(lessor.At(1, 0), clocks.Now())
	l.Promote(0, clocks.Now(), 1)
	l.Grant(7, 100*time.Second, lessor.At(2, 0), clocks.Now())

	clocks.Advance(60 * time.Second)
	l.Due(clocks.Now(), lessor.At(2, 0))
	// Output: propose: lease 7 has 40s left
}

func ExampleLessor_Recover() {
	l := lessor.New(lessor.Config{})
	l.Grant(7, time.Minute, lessor.At(2, 0), clock.Instant{})
	record, _ := l.Record(7)

	recovered := lessor.New(lessor.Config{})
	recovered.Recover(slices.Values([]lessor.Record{record}), l.Leaderships())
	lease, ok := recovered.Lookup(7)
	fmt.Println(lease.TTL, ok)
	// Output: 1m0s true
}

// handClock is a pair of clocks that a test moves. It is safe for concurrent use.
type handClock struct {
	mu     sync.Mutex
	clocks clock.Manual
}

func (h *handClock) Now() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clocks.Now()
}

func (h *handClock) Advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clocks.Advance(d)
}

// The classic usage: a goroutine receives expired leases and revokes them.
func ExampleDriver() {
	clocks := new(handClock) // without Now the driver uses this machine's clocks
	le := lessor.NewDriver(lessor.DriverConfig{Now: clocks.Now})
	defer le.Stop()
	le.SetRangeDeleter(func() lessor.TxnDelete { return printingTxn{} })
	le.Promote(0)

	revoked := make(chan struct{})
	go func() {
		defer close(revoked)
		for _, lease := range <-le.ExpiredLeasesC() {
			if err := le.Revoke(lease.ID); err != nil {
				fmt.Println(err)
			}
		}
	}()

	lease, err := le.Grant(7, 5) // seconds
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := le.Attach(lease.ID, []lessor.Item{{Key: "foo"}}); err != nil {
		fmt.Println(err)
		return
	}

	clocks.Advance(10 * time.Second)
	le.Wake() // needed only because the test moves the clock
	<-revoked
	fmt.Println("foo belongs to", le.GetLease(lessor.Item{Key: "foo"}))
	// Output:
	// delete foo
	// foo belongs to 0
}

type printingTxn struct{}

func (printingTxn) DeleteRange(key, _ []byte) (n, rev int64) {
	fmt.Printf("delete %s\n", key)
	return 1, 0
}

func (printingTxn) End() {}
