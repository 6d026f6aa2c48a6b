package replica

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// benchmarkBatch is how many commands share one log entry in BenchmarkClaimAndRelease.
const benchmarkBatch = 64

// BenchmarkClaimAndRelease measures a claim and a release of a name, from Step to the reply, on a database in memory.
func BenchmarkClaimAndRelease(b *testing.B) {
	w := newWorld(b).serve()
	defer w.close()
	var names [benchmarkBatch]string
	for i := range names {
		names[i] = "bench/" + string(rune('a'+i))
	}
	claims, releases := make([]Event, benchmarkBatch), make([]Event, benchmarkBatch)
	lease := lessor.ID(1)
	b.ReportAllocs()
	for n := 0; n < b.N; n += benchmarkBatch {
		for i := range names {
			lease++
			claims[i] = Request{ID: uint64(i + 1), Command: ownership.Claim{Lease: lease, TTL: time.Hour, Name: names[i], Holder: []byte("holder")}}
			releases[i] = Request{ID: uint64(i + 1), Command: ownership.Release{Lease: lease, Name: names[i]}}
		}
		for _, events := range [][]Event{claims, releases} {
			w.clock.Advance(time.Microsecond)
			w.performUnsynced(w.replica.Step(w.clock.Now(), events...))
		}
	}
}

// performUnsynced commits writes without a sync and reports them until the replica rests.
func (w *world) performUnsynced(effects []Effect) {
	for {
		var reports []Event
		for _, e := range effects {
			switch e := e.(type) {
			case Persist:
				if err := e.Batch.Commit(pebble.NoSync); err != nil {
					w.t.Fatal(err)
				}
				reports = append(reports, Persisted{Sequence: e.Sequence})
			case Halt:
				w.t.Fatal(e.Err)
			}
		}
		if reports == nil && len(w.replica.deferred) == 0 {
			return
		}
		effects = w.replica.Step(w.clock.Now(), reports...)
	}
}

// BenchmarkRenewalFromMemory measures the renewal of one of many leases by Answer.
func BenchmarkRenewalFromMemory(b *testing.B) {
	const leases = 1000
	w := newWorld(b).serve()
	defer w.close()
	for id := 1; id <= leases; id++ {
		w.do(uint64(id), entry.Grant{Lease: lessor.ID(id), TTL: time.Hour})
	}
	ids := make([][]lessor.ID, leases)
	for i := range ids {
		ids[i] = []lessor.ID{lessor.ID(i + 1)}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := w.replica.Answer(w.clock.Now(), Renewal{ID: 1, Leases: ids[i%leases]}); !ok {
			b.Fatal("the replica does not answer from memory")
		}
	}
}
