package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// limitedWorld is a world that serves and whose replica has limits.
func limitedWorld(t *testing.T, limits SpaceLimits) *world {
	w := newWorld(t).serve()
	t.Cleanup(w.close)
	w.replica.space.Limits = limits
	return w
}

// What needs space is refused, and what keeps promises or makes room is not.
func TestShortageRefusesOnlyCommandsThatNeedSpace(t *testing.T) {
	w := limitedWorld(t, SpaceLimits{MinFree: 1000})
	w.step(Space{Free: 1000})
	w.do(1, entry.Grant{Lease: 1, TTL: time.Second})
	w.do(2, entry.Grant{Lease: 2, TTL: time.Hour})
	w.do(3, entry.Grant{Lease: 3, TTL: time.Hour})
	for i, key := range []string{"a", "b", "c"} {
		w.do(uint64(10+i), keyspace.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: int64(1 + i)})
	}
	w.do(15, putKey("d"))
	w.step(Space{Free: 999})
	for id, op := range map[uint64]entry.Command{
		20: putKey("x"), 21: entry.Grant{Lease: 9, TTL: time.Hour},
		22: keyspace.TxnRequest{Failure: []keyspace.TxnOp{
			keyspace.RangeRequest{Key: []byte("a")}, keyspace.TxnRequest{Success: []keyspace.TxnOp{putKey("x")}},
		}},
	} {
		if got := w.do(id, op); !errors.Is(got.Err, ErrNoSpace) {
			t.Errorf("%T: %v", op, got.Err)
		}
	}
	for i, op := range []entry.Command{entry.Revoke{Lease: 2}, keyspace.DeleteRequest{Key: []byte("d")}} {
		if got := w.do(uint64(30+i), op); got.Err != nil {
			t.Errorf("%T: %v", op, got.Err)
		}
	}
	renewed := w.step(Renewal{ID: 40, Leases: []lessor.ID{1, 3}})
	for _, e := range renewed {
		if r, ok := e.(Renewed); ok && (len(r.Leases) != 2 || r.Leases[0].Err != nil || r.Leases[1].Err != nil) {
			t.Errorf("renewed %+v", r)
		}
	}
	w.advance(990 * time.Millisecond) // by now checkpointed, so that a renewal needs an entry
	if got := append(w.step(Renewal{ID: 41, Leases: []lessor.ID{1}}), w.settle()...); !strings.Contains(fmt.Sprint(got), "1s") {
		t.Errorf("a renewal that must be replicated: %v", got)
	}
	w.advance(1100 * time.Millisecond)
	if dump := w.dump(); strings.Contains(dump, "a=") || strings.Contains(dump, "b=") || strings.Contains(dump, "d=") || !strings.Contains(dump, "c=") {
		t.Errorf("lease 1 expired, 2 was revoked, d deleted, and 3 lives:\n%s", dump)
	}
	if late := w.replica.Late(); late.Count() != 1 || late.Sum() > 10*time.Millisecond {
		t.Errorf("one lease ended in time, but lateness is %+v", late)
	}
}

// Requests that wait when the shortage begins are refused like those that come after; the rest keep their
// places.
func TestShortageRefusesQueuedWrites(t *testing.T) {
	w := limitedWorld(t, SpaceLimits{Quota: 1000})
	w.do(1, putKey("old"))
	w.step(Request{ID: 2, Command: putKey("first")}) // in flight: the next commands wait for it
	effects := w.step(Request{ID: 3, Command: putKey("x")}, Request{ID: 4, Command: keyspace.DeleteRequest{Key: []byte("old")}}, Space{Free: 1, Used: 1001})
	if got := w.replyTo(3, effects); !errors.Is(got.Err, ErrNoSpace) {
		t.Errorf("the put that waited: %+v", got)
	}
	effects = w.settle()
	if got := w.replyTo(2, effects); got.Err != nil {
		t.Errorf("the put under way: %+v", got)
	}
	if got := w.replyTo(4, effects); got.Err != nil {
		t.Errorf("the delete that waited: %+v", got)
	}
}

// A shortage ends by itself, a little beyond where it began, or at the limit itself if an operator asks.
func TestShortageEndsWhenSpaceIsBack(t *testing.T) {
	limits := SpaceLimits{MinFree: 800, Quota: 1600}
	for _, c := range []struct {
		at   []Space
		want Shortage
	}{
		{[]Space{{Free: 800, Used: 1600}}, Enough},
		{[]Space{{Free: 799, Used: 1600}}, DiskFull},
		{[]Space{{Free: 800, Used: 1601}}, QuotaExceeded},
		{[]Space{{Free: 1, Used: 1e6}}, DiskFull},
		{[]Space{{Free: 799}, {Free: 899}}, DiskFull},
		{[]Space{{Free: 799}, {Free: 900}}, Enough},
		{[]Space{{Free: 799}, {Free: 800, Asked: true}}, Enough},
		{[]Space{{Free: 799}, {Free: 799, Asked: true}}, DiskFull},
		{[]Space{{Free: 9999, Used: 1601}, {Free: 9999, Used: 1501}}, QuotaExceeded},
		{[]Space{{Free: 9999, Used: 1601}, {Free: 9999, Used: 1500}}, Enough},
		{[]Space{{Free: 9999, Used: 1601}, {Free: 9999, Used: 1600, Asked: true}}, Enough},
		{[]Space{{Free: 1, Used: 1601}, {Free: 9999, Used: 1601}}, QuotaExceeded},
		{[]Space{{Free: 1}, {Free: UnknownFree}}, Enough},
		{[]Space{{Free: 9999, Ordered: true}}, Ordered},
		{[]Space{{Free: 9999, Ordered: true}, {Free: 800, Asked: true}}, Enough},
	} {
		w := limitedWorld(t, limits)
		for _, s := range c.at {
			w.step(s)
		}
		if got := w.replica.Shortage(); got != c.want {
			t.Errorf("after %+v: %v, want %v", c.at, got, c.want)
		}
		reply := w.do(1, putKey("k"))
		if c.want == Enough && reply.Err != nil || c.want != Enough && !errors.Is(reply.Err, ErrNoSpace) {
			t.Errorf("after %+v a put gets %v", c.at, reply.Err)
		}
	}
	w := limitedWorld(t, SpaceLimits{})
	w.step(Space{Free: 0, Used: 1 << 62})
	if got := w.replica.Shortage(); got != Enough {
		t.Errorf("without limits: %v", got)
	}
}

// A log of few but large entries is cut too, and a start finds its size again.
func TestLogIsTruncatedBySize(t *testing.T) {
	w := newWorld(t)
	w.close()
	w.logStep = 16 << 10
	w.start()
	w.serve()
	value := make([]byte, 1<<10)
	for id := uint64(1); id <= 16*(raftlog.MaxSteps+2); id++ {
		if got := w.do(id, keyspace.PutRequest{Key: []byte("k"), Value: value}); got.Err != nil {
			t.Fatal(got.Err)
		}
		if id == 100 {
			steps, past := w.replica.log.Steps(), w.replica.log.Past()
			w.close()
			w.start()
			if l := w.replica.log; l.Steps() != steps || l.Past() < past || l.Past() > past+1<<10 {
				t.Errorf("%d steps and %d bytes before the restart, %d and %d after", steps, past, l.Steps(), l.Past())
			}
			w.serve()
		}
	}
	defer w.close()
	l := w.replica.log
	if l.Truncated().Index == 0 || l.Steps() > raftlog.MaxSteps || l.Last()-l.Truncated().Index > 16*raftlog.MaxSteps+1 {
		t.Errorf("the log reaches from %d to %d, in %d steps", l.Truncated().Index, l.Last(), l.Steps())
	}
}
