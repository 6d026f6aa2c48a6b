package lessor_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper/lessor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newDriver returns a primary-to-be driver whose clock the test moves. The driver stops with the test.
func newDriver(t *testing.T, config lessor.DriverConfig) (*lessor.Driver, *handClock) {
	clocks := new(handClock)
	config.Now = clocks.Now
	d := lessor.NewDriver(config)
	t.Cleanup(d.Stop)
	return d, clocks
}

func grant(t *testing.T, d *lessor.Driver, id lessor.ID, ttl int64) {
	t.Helper()
	if _, err := d.Grant(id, ttl); err != nil {
		t.Fatal(err)
	}
}

func pass(d *lessor.Driver, clocks *handClock, by time.Duration) {
	clocks.Advance(by)
	d.Wake()
}

func ids(leases []*lessor.Lease) (found []lessor.ID) {
	for _, l := range leases {
		found = append(found, l.ID)
	}
	return found
}

// The driver sends an expired lease to the channel and no longer renews it. If the reader does not revoke it,
// the driver sends it again.
func TestDriverHandsOutUnrevokedLeaseAgain(t *testing.T) {
	d, clocks := newDriver(t, lessor.DriverConfig{})
	d.Promote(0)
	grant(t, d, 1, 5)
	grant(t, d, 2, 5)
	pass(d, clocks, 6*time.Second)
	if got := ids(<-d.ExpiredLeasesC()); !slices.Equal(got, []lessor.ID{1, 2}) {
		t.Fatalf("the driver sent %v", got)
	}
	if _, err := d.Renew(1); err != lessor.ErrEnding {
		t.Fatalf("Renew returned %v", err)
	}
	if err := d.Revoke(2); err != nil {
		t.Fatal(err)
	}
	// The driver records the time of the delivery a moment later. Let time pass until it has.
	var again []*lessor.Lease
	for again == nil {
		pass(d, clocks, lessor.DefaultRetryInterval)
		select {
		case again = <-d.ExpiredLeasesC():
		case <-time.After(time.Millisecond):
		}
	}
	if got := ids(again); !slices.Equal(got, []lessor.ID{1}) {
		t.Fatalf("the driver sent again %v", got)
	}
}

// The driver sends all batches, even if the channel holds fewer.
func TestDriverLosesNoBatch(t *testing.T) {
	const n = 100
	d, clocks := newDriver(t, lessor.DriverConfig{Lessor: lessor.Config{MaxExpiries: 1}})
	d.Promote(0)
	for i := range n {
		grant(t, d, lessor.ID(i+1), 5)
	}
	pass(d, clocks, 6*time.Second)
	seen := map[lessor.ID]bool{}
	for len(seen) < n {
		for _, lease := range <-d.ExpiredLeasesC() {
			seen[lease.ID] = true
			if err := d.Revoke(lease.ID); err != nil && err != lessor.ErrNotFound {
				t.Fatal(err)
			}
		}
	}
	if left := d.Leases(); len(left) > 0 {
		t.Errorf("leases left: %v", ids(left))
	}
}

// Demote takes back the batches that the reader has not received. No lease ends until the next Promote.
func TestDemoteWithdrawsUnreceivedBatches(t *testing.T) {
	d, clocks := newDriver(t, lessor.DriverConfig{})
	grant(t, d, 1, 5)
	if _, err := d.Renew(1); err != lessor.ErrNotPrimary {
		t.Fatalf("renewed before Promote: %v", err)
	}
	d.Promote(0)
	pass(d, clocks, 6*time.Second)
	for lease := d.Lookup(1); !lease.Ending; lease = d.Lookup(1) {
		time.Sleep(time.Millisecond)
	}
	d.Demote()
	select {
	case got := <-d.ExpiredLeasesC():
		t.Fatalf("the driver sent %v after Demote", ids(got))
	default:
	}
	if d.Lookup(1).Ending {
		t.Error("a lease expires without a primary")
	}
	d.Promote(0)
	if ttl, err := d.Renew(1); ttl != 5 || err != nil {
		t.Errorf("Renew returned %d s, %v", ttl, err)
	}
}

// Renew of a checkpointed lease returns once the Checkpointer has recorded the clear.
func TestDriverRenewWaitsForClear(t *testing.T) {
	d, clocks := newDriver(t, lessor.DriverConfig{})
	checkpointed, recorded := make(chan lessor.Checkpoint), make(chan struct{})
	d.SetCheckpointer(func(checkpoints []lessor.Checkpoint, cleared []lessor.Cleared) {
		for _, c := range checkpoints {
			checkpointed <- c
		}
		for range cleared {
			recorded <- struct{}{}
		}
	})
	d.Promote(0)
	grant(t, d, 1, 100)
	pass(d, clocks, 60*time.Second)
	if c := <-checkpointed; c.ID != 1 || c.Remaining != 40*time.Second {
		t.Fatalf("the checkpoint is %+v", c)
	}
	done := make(chan error)
	for range 3 {
		go func() { _, err := d.Renew(1); done <- err }()
	}
	select {
	case <-recorded:
	case err := <-done:
		t.Fatalf("Renew returned before the clear was recorded: %v", err)
	}
	// The three renewals share the clear. One that comes after it needs none.
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if lease := d.Lookup(1); lease.Checkpointed || lease.Clearing {
		t.Errorf("the lease after the renewals: %+v", lease)
	}
}

// A waiting renewal returns when the lease ends, the driver is demoted, or another program clears the lease.
func TestDriverEndsWaitingRenewals(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*lessor.Driver)
		want error
	}{
		{"revoke", func(d *lessor.Driver) { _ = d.Revoke(1) }, lessor.ErrNotFound},
		{"demote", func(d *lessor.Driver) { d.Demote() }, lessor.ErrNotPrimary},
		{"promote", func(d *lessor.Driver) { d.Promote(0) }, lessor.ErrNotPrimary},
		{"cleared elsewhere", func(d *lessor.Driver) { _ = d.Checkpoint(1, 0) }, nil},
	} {
		d, _ := newDriver(t, lessor.DriverConfig{})
		started, release := make(chan struct{}, 9), make(chan struct{})
		d.SetCheckpointer(func([]lessor.Checkpoint, []lessor.Cleared) { started <- struct{}{}; <-release })
		d.Promote(0)
		grant(t, d, 1, 100)
		if err := d.Checkpoint(1, 50); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { _, err := d.Renew(1); done <- err }()
		<-started
		test.end(d)
		if err := <-done; !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
		close(release)
	}
}

func TestStopEndsWaitingRenewals(t *testing.T) {
	d, _ := newDriver(t, lessor.DriverConfig{})
	started, release := make(chan struct{}), make(chan struct{})
	d.SetCheckpointer(func([]lessor.Checkpoint, []lessor.Cleared) { close(started); <-release })
	d.Promote(0)
	grant(t, d, 1, 100)
	if err := d.Checkpoint(1, 50); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { _, err := d.Renew(1); done <- err }()
	<-started
	var stopping sync.WaitGroup
	for range 2 {
		stopping.Go(d.Stop)
	}
	if err := <-done; err != lessor.ErrStopped {
		t.Errorf("the waiting renewal returned %v", err)
	}
	close(release)
	stopping.Wait()
	d.Stop()
}

// A store that deletes the items of a lease may ask the driver about them. They are no longer attached then.
func TestRangeDeleterMayCallTheDriver(t *testing.T) {
	d, _ := newDriver(t, lessor.DriverConfig{})
	var log []string
	d.SetRangeDeleter(func() lessor.TxnDelete { return callbackTxn{d, &log} })
	grant(t, d, 1, 5)
	if err := d.Attach(1, []lessor.Item{{Key: "b"}, {Key: "a"}, {Key: "c"}}); err != nil {
		t.Fatal(err)
	}
	if err := d.Detach(1, []lessor.Item{{Key: "c"}}); err != nil {
		t.Fatal(err)
	}
	if err := d.Revoke(1); err != nil {
		t.Fatal(err)
	}
	if err := d.Revoke(1); err != lessor.ErrNotFound {
		t.Errorf("revoked twice: %v", err)
	}
	if want := []string{"a 0", "b 0", "end"}; !slices.Equal(log, want) {
		t.Errorf("the store saw %v", log)
	}
}

type callbackTxn struct {
	d   *lessor.Driver
	log *[]string
}

func (x callbackTxn) DeleteRange(key, _ []byte) (n, rev int64) {
	*x.log = append(*x.log, fmt.Sprint(string(key), " ", x.d.GetLease(lessor.Item{Key: string(key)})))
	return 1, 0
}

func (x callbackTxn) End() { *x.log = append(*x.log, "end") }

func TestRecoveredDriverKeepsRemainingTimes(t *testing.T) {
	d, clocks := newDriver(t, lessor.DriverConfig{})
	d.SetCheckpointer(func([]lessor.Checkpoint, []lessor.Cleared) {})
	d.Promote(0)
	grant(t, d, 1, 100)
	grant(t, d, 2, 100)
	if err := d.Checkpoint(1, 30); err != nil {
		t.Fatal(err)
	}
	records, leaderships := d.Records()

	e := lessor.NewDriver(lessor.DriverConfig{Now: clocks.Now})
	defer e.Stop()
	e.SetCheckpointer(func([]lessor.Checkpoint, []lessor.Cleared) {})
	e.Recover(slices.Values(records), leaderships)
	e.Promote(0)
	if got := ids(e.Leases()); !slices.Equal(got, []lessor.ID{1, 2}) {
		t.Errorf("leases are not ordered by their ends: %v", got)
	}
	if lease := e.Lookup(1); lease == nil || lease.Deadline != clocks.Now().Add(30*time.Second) {
		t.Errorf("the recovered lease is %+v", lease)
	}
	if e.Lookup(3) != nil {
		t.Error("found a lease that was not recovered")
	}
}

// A checkpoint of the caller counts at the next Promote without a Checkpointer, until a renewal.
func TestCheckpointNeedsNoCheckpointer(t *testing.T) {
	d, clocks := newDriver(t, lessor.DriverConfig{})
	grant(t, d, 1, 100)
	grant(t, d, 2, 100)
	if err := d.Checkpoint(1, 30); err != nil {
		t.Fatal(err)
	}
	left := func(id lessor.ID) time.Duration { return clocks.Now().Until(d.Lookup(id).Deadline) }
	d.Promote(0)
	if left(1) != 30*time.Second || left(2) != 100*time.Second {
		t.Errorf("after Promote the checkpointed lease has %v left, the other one %v", left(1), left(2))
	}
	if _, err := d.Renew(1); err != nil || left(1) != 100*time.Second || d.Lookup(1).Checkpointed {
		t.Errorf("after a renewal the lease has %v left and is %+v; error: %v", left(1), d.Lookup(1), err)
	}
	d.Demote()
	d.Promote(0)
	if left(1) != 100*time.Second {
		t.Errorf("after another Promote the renewed lease has %v left", left(1))
	}
}

func TestDriverLimitsTTLs(t *testing.T) {
	d, _ := newDriver(t, lessor.DriverConfig{MinTTL: 2 * time.Second})
	if lease, err := d.Grant(1, -5); err != nil || lease.TTL != 2*time.Second {
		t.Errorf("%+v, %v", lease, err)
	}
	if _, err := d.Grant(2, 1<<62); err != lessor.ErrTTLTooLarge {
		t.Error(err)
	}
	if _, err := d.Grant(1, 5); err != lessor.ErrExists {
		t.Error(err)
	}
	if _, err := d.Grant(lessor.NoLease, 5); err != lessor.ErrNotFound {
		t.Error(err)
	}
	if err := d.Checkpoint(99, 5); err != nil {
		t.Error(err)
	}
}

// ledger records what a concurrent test did to a driver.
type ledger struct {
	mu       sync.Mutex
	granted  int
	attached []string
}

// load calls everything that a driver offers but Stop, as the writer with a number. It returns the first
// unexpected error.
func (l *ledger) load(d *lessor.Driver, writer int) error {
	for i := range 200 {
		id, key := lessor.ID(i%10+1), fmt.Sprint(writer, "/", i)
		_, granted := d.Grant(id, 0)
		_, renewed := d.Renew(id)
		attached := d.Attach(id, []lessor.Item{{Key: key}})
		l.mu.Lock()
		if granted == nil {
			l.granted++
		}
		if attached == nil {
			l.attached = append(l.attached, key)
		}
		l.mu.Unlock()
		if granted != nil && !errors.Is(granted, lessor.ErrExists) {
			return granted
		}
		if renewed != nil && !slices.Contains([]error{lessor.ErrNotFound, lessor.ErrEnding, lessor.ErrNotPrimary}, renewed) {
			return renewed
		}
		if attached != nil && !errors.Is(attached, lessor.ErrNotFound) {
			return attached
		}
		if err := d.Checkpoint(id, int64(i%2)); err != nil {
			return err
		}
		if writer == 0 && i%50 == 0 {
			d.Demote()
			d.Promote(0)
		}
	}
	return nil
}

// With concurrent callers and the machine's clocks, each grant ends once. Each attached key is deleted once,
// when its lease ends.
func TestConcurrentGrantsAllEndOnce(t *testing.T) {
	d := lessor.NewDriver(lessor.DriverConfig{MinTTL: time.Millisecond, RetryInterval: time.Millisecond})
	d.SetCheckpointer(func([]lessor.Checkpoint, []lessor.Cleared) {})
	var deletions []string // owned by the reader of the channel, like the ends
	d.SetRangeDeleter(func() lessor.TxnDelete { return callbackTxn{d, &deletions} })
	d.Promote(0)
	written := make(chan struct{})
	var reader, writers sync.WaitGroup
	ended := 0
	revoke := func(leases []*lessor.Lease) {
		for _, lease := range leases {
			if d.Revoke(lease.ID) == nil {
				ended++
			}
		}
	}
	reader.Go(func() {
		for writing := true; writing; {
			select {
			case leases := <-d.ExpiredLeasesC():
				revoke(leases)
			case <-written:
				writing = false
			}
		}
		for len(d.Leases()) > 0 {
			revoke(<-d.ExpiredLeasesC())
		}
	})
	var done ledger
	for w := range 4 {
		writers.Go(func() {
			if err := done.load(d, w); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	close(written)
	reader.Wait()
	d.Stop()

	if done.granted == 0 || ended != done.granted {
		t.Errorf("%d leases were granted, and %d ended", done.granted, ended)
	}
	var want, got []string
	for _, key := range done.attached {
		want = append(want, key+" 0") // attached to no lease
	}
	for _, line := range deletions {
		if line != "end" {
			got = append(got, line)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d keys were attached, and %d deleted", len(want), len(got))
	}
}

func TestDriverConfigRefusesNegativeValues(t *testing.T) {
	if err := (lessor.DriverConfig{}).Validate(); err != nil {
		t.Error(err)
	}
	bad := lessor.DriverConfig{Tick: -1, Grace: -1, Lessor: lessor.Config{MaxVisits: -1}}
	if err := bad.Validate(); err == nil {
		t.Error("a negative tick is valid")
	}
}
