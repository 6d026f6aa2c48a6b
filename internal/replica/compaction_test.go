package replica

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// sample says when a revision came to be.
type sample struct {
	at       clock.Instant
	revision int64
}

// Whatever is written and however time passes: a revision that was current within the retention can be read. One that
// was superseded well before cannot. The samples stay few.
func TestHistoryIsKeptForTheRetention(t *testing.T) {
	for _, retention := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
		t.Run(retention.String(), func(t *testing.T) {
			w := newWorldOf(t, func(w *world) { w.retention = retention })
			defer func() { w.close() }()
			w.serve()
			rng := rand.New(rand.NewPCG(uint64(retention), 1))
			current := []sample{{w.clock.Now(), 1}} // when each revision came to be
			slack := max(retention/intake.RetentionSamples, intake.MinSampleInterval) + time.Second
			for id := uint64(1); id < 400; id++ {
				if rng.IntN(2) == 0 {
					w.do(id, keyspace.PutRequest{Key: fmt.Appendf(nil, "k%d", rng.IntN(3))})
					current = append(current, sample{w.clock.Now(), w.replica.Store().Revision()})
				}
				pass(w, time.Duration(rng.Int64N(int64(retention/4))))
				checkHistory(t, w, current, retention, slack)
				if n := w.replica.history.revisions.Len(); n > intake.RetentionSamples+2 {
					t.Fatalf("%d samples", n)
				}
			}
			if w.replica.Store().CompactRevision() < 50 {
				t.Errorf("compacted only to %d", w.replica.Store().CompactRevision())
			}
		})
	}
}

// pass lets time pass in steps that do not make a test of an hour long.
func pass(w *world, d time.Duration) {
	for step := max(TickInterval, d/20); d > 0; d -= step {
		w.clock.Advance(min(step, d))
		w.step(Tick{})
		w.settle()
	}
	for range 3 { // a pause holds decisions back for a moment
		w.advance(TickInterval)
	}
}

func checkHistory(t *testing.T, w *world, current []sample, retention, slack time.Duration) {
	t.Helper()
	now, compacted := w.clock.Now(), w.replica.Store().CompactRevision()
	for i, s := range current {
		if i+1 == len(current) {
			if compacted > s.revision {
				t.Fatalf("compacted to %d, current is %d", compacted, s.revision)
			}
			return
		}
		superseded := now.Elapsed(current[i+1].at)
		if superseded < retention && compacted > s.revision {
			t.Fatalf("compacted to %d, but revision %d was current %v ago", compacted, s.revision, superseded)
		}
		if superseded > retention+slack && compacted <= s.revision {
			t.Fatalf("compacted to %d, but revision %d was superseded %v ago", compacted, s.revision, superseded)
		}
	}
}

// A suspension of the machine counts towards the retention with the time that has certainly passed.
func TestSuspensionCountsTowardsRetention(t *testing.T) {
	h := intake.Revisions{}
	m := clock.NewManual(clock.Instant{})
	h.Note(m.Now(), 5, time.Minute)
	m.Suspend(time.Hour)
	if old, ok := h.Note(m.Now(), 6, time.Minute); ok {
		t.Errorf("history before %d is over though only one clock moved", old)
	}
	m.Advance(time.Minute)
	if old, ok := h.Note(m.Now(), 7, time.Minute); !ok || old != 5 {
		t.Errorf("after a minute on both clocks: %d, %v", old, ok)
	}
}

// A physical compaction is answered after the last removal and not before, however many steps it takes;
// others are answered meanwhile.
func TestPhysicalCompactionIsAnsweredAfterTheLastRemoval(t *testing.T) {
	w := newWorld(t)
	defer func() { w.close() }()
	w.serve()
	const keys = 4*trimKeys + 7
	for i := range uint64(keys) {
		w.step(Request{ID: i + 1, Command: keyspace.PutRequest{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("1")}})
	}
	w.settle()
	rev := w.replica.Store().Revision()
	w.step(Request{ID: keys + 1, Command: entry.Compact{Revision: rev, Physical: true}}, Request{ID: keys + 2, Command: entry.Compact{Revision: rev}})
	steps := w.settle()
	for ; ; steps = w.step(Tick{}) {
		trimmed := w.replica.Store().Trimmed() >= rev
		if replied := hasReply(steps, keys+1); replied != trimmed {
			t.Fatalf("answered: %v, trimmed: %v", replied, trimmed)
		} else if replied {
			break
		}
		if w.wait() != 0 {
			t.Fatalf("waits for %v with work to do", w.wait())
		}
	}
	w.do(keys+3, keyspace.PutRequest{Key: []byte("k")})
}

func hasReply(effects []Effect, id uint64) bool {
	for _, e := range effects {
		if r, ok := e.(Reply); ok && r.ID == id {
			return r.Err == nil
		}
	}
	return false
}

// A compaction of the member's own that is lost with its leadership is answered to no client, and is proposed again.
func TestFailedCompactionIsProposedAgain(t *testing.T) {
	w := newWorldOf(t, func(w *world) { w.retention = 2 * time.Second })
	defer func() { w.close() }()
	w.serve()
	w.do(1, keyspace.PutRequest{Key: []byte("k")})
	w.clock.Advance(time.Second)
	w.step(Tick{})
	r := w.replica
	r.effects = nil
	r.history.proposed = 2
	r.fail([]intake.Pending{r.intake.Prepare(0, entry.Compact{Revision: 2}, access.Caller{})}, ErrNoLeader)
	if len(r.effects) > 0 {
		t.Errorf("a client is answered: %v", r.effects)
	}
	w.advance(4 * time.Second)
	if got := r.Store().CompactRevision(); got != 2 {
		t.Errorf("compacted to %d", got)
	}
}
