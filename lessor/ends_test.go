package lessor

import (
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Ends, once sorted, lists the same leases in the same order as Leases.
func TestEndsListsTheLeasesOfLeases(t *testing.T) {
	l := New(Config{})
	var now clock.Manual
	l.Promote(0, now.Now(), 1)
	for i := range 50 {
		ttl := time.Duration(i*7%11+1) * time.Second
		if _, err := l.Grant(ID(i+1), ttl, At(uint64(i+1), 0), now.Advance(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	ends := l.Ends()
	slices.SortFunc(ends, End.Compare)
	for i, lease := range l.Leases() {
		if want := (End{lease.Ref(), lease.Deadline}); ends[i] != want {
			t.Fatalf("place %d: %+v, want %+v", i, ends[i], want)
		}
	}
}
