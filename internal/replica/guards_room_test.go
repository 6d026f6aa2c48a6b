package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/yield"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Claims are never bulk, so the bound of the bulk queue does not hold them. The bound of all queues together does.
func TestLargeClaimsAreBoundedInBytes(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.step(Request{ID: 1, Command: putKey("slow")}) // its write is not reported
	card := make([]byte, 1<<20)
	taken := 0
	for i := range 2 * intake.MaxBytes >> 20 {
		id := lessor.ID(10 + i)
		claim := ownership.Claim{Lease: id, TTL: time.Minute, Name: fmt.Sprint("n", id), Holder: card}
		if tally(w.step(Request{ID: uint64(id), Command: claim}))[ErrTooManyRequests] == 0 {
			taken++
		}
	}
	if most := intake.MaxBytes>>20 + 1; taken > most || taken < most/2 {
		t.Errorf("%d claims of a MiB are taken on, and at most %d should be", taken, most)
	}
}

// A command that no log entry may carry is refused before it is queued.
func TestTooLargeCommandIsNotQueued(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	value := make([]byte, w.replica.maxCommandBytes()+1)
	effects := w.step(Request{ID: 1, Command: keyspace.PutRequest{Key: []byte("k"), Value: value}})
	if tally(effects)[ErrTooLarge] != 1 || len(w.writes) > 0 {
		t.Errorf("it is answered by %v, and %d writes are under way", tally(effects), len(w.writes))
	}
	if r := w.do(2, putKey("k")); r.Err != nil {
		t.Errorf("the next one: %v", r.Err)
	}
}

// A reading of the disk that shows enough space refuses nothing that waits.
func TestEnoughSpaceRefusesNothingThatWaits(t *testing.T) {
	w := limitedWorld(t, SpaceLimits{Quota: 1000})
	w.step(Request{ID: 1, Command: putKey("first")}) // in flight: the next command waits for it
	effects := w.step(Request{ID: 2, Command: putKey("x")}, Space{Free: 1, Used: 999})
	effects = append(effects, w.settle()...)
	if r := w.replyTo(2, effects); r.Err != nil {
		t.Errorf("the put that waited: %v", r.Err)
	}
}

// The renewals that wait for a decision about their lease are bounded.
func TestWaitingRenewalsAreBounded(t *testing.T) {
	w := newWorld(t).serve()
	w.do(1, entry.Grant{Lease: 7, TTL: time.Minute})
	again := w.crashed(nil)
	w.close()
	again.start()
	defer again.close()
	again.serve() // the lease has a decision to wait for at its first renewal
	r := again.replica
	r.waiters = maxWaiters
	for _, e := range again.step(Renewal{ID: 2, Leases: []lessor.ID{7}}) {
		if e, ok := e.(Renewed); ok && errors.Is(e.Leases[0].Err, ErrTooManyRequests) {
			return
		}
	}
	t.Errorf("%d renewals wait, and one more is not refused", r.waiters)
}

// A replica that has halted ignores whatever comes later.
func TestHaltedReplicaDoesNothing(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.mayHalt = true
	w.step(Request{ID: 1, Command: putKey("k")})
	w.replica.haltWith(errUnreadable)
	p := w.writes[0]
	for _, event := range []Event{Tick{}, Request{ID: 2, Command: putKey("k")}, Renewal{ID: 3, Leases: []lessor.ID{7}}, Persisted{Sequence: p.Sequence}} {
		if effects := w.step(event); len(effects) > 0 {
			t.Errorf("%T has effects: %v", event, effects)
		}
	}
}

// A follower without a leader says so, and names no member 0.
func TestFollowerWithoutALeaderNamesNone(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	r := g.members[g.follower(leader)].replica
	if err, ok := errors.AsType[*NotLeaderError](r.notLeader()); !ok || err.Leader != leader {
		t.Errorf("a follower of %d says %v", leader, r.notLeader())
	}
	r.leader = 0
	if err := r.notLeader(); err != ErrNoLeader {
		t.Errorf("a member that knows no leader says %v", err)
	}
	if err := g.members[leader].replica.notLeader(); err != ErrNoLeader {
		t.Errorf("a leader that does not serve yet says %v", err)
	}
}

// slowLately reports whether one slow write more makes this leader hand over.
func slowLately(r *Replica) bool {
	judge := r.yielding
	return judge.Faster(r.now.Add(r.cfg.ElectionTimeout/4), slowWrite(&judge, 1<<40, r.now, r.cfg.ElectionTimeout), nil) != nil
}

// slowWrite returns a write that began now and that another member has after an eighth of the election timeout.
func slowWrite(judge *yield.Judge, sequence uint64, now clock.Instant, timeout time.Duration) *yield.Write {
	w := &yield.Write{Sequence: sequence, Since: now}
	judge.Faster(now.Add(timeout/8), w, func() []uint64 { return []uint64{2} })
	return w
}

// A slow leader stays if no better member could take over. It does not count a hand-over, nor does it wait a minute
// until it tries again.
func TestSlowLeaderStaysIfNoMemberCanTakeOver(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	r := g.members[leader].replica
	for _, id := range g.butFor(leader) {
		r.yielding.Hear(r.now, id, memberpb.Room_ROOM_SHORT)
	}
	g.cut = func(m Message) bool { return m.Room != memberpb.Room_ROOM_UNKNOWN }
	g.slow = leader
	g.load(leader, 1200*time.Millisecond, 500*time.Millisecond)
	if !slowLately(r) {
		t.Fatal("it is not slow")
	}
	if g.yields() != 0 || r.handing != nil {
		t.Errorf("%d hand-overs", g.yields())
	}
}

// A leader that does not serve hands over to no member, however slow it was.
func TestLeaderThatLeftDoesNotYield(t *testing.T) {
	g := newTeam(t, 3)
	r := g.members[g.elected()].replica
	began := r.now.Add(-r.cfg.ElectionTimeout)
	r.yielding.Faster(began.Add(r.cfg.ElectionTimeout/4), slowWrite(&r.yielding, 1<<30, began, r.cfg.ElectionTimeout), nil)
	r.yielding.Hear(r.now, 2, memberpb.Room_ROOM_ENOUGH)
	r.yielding.Roomier(began, DiskFull, nil)
	if judge := r.yielding; !slowLately(r) || judge.Roomier(r.now, DiskFull, []uint64{2}) == nil {
		t.Fatal("it is neither slow nor full")
	}
	r.left = true
	r.considerYield()
	if judge := r.yielding; slowLately(r) || judge.Roomier(r.now, DiskFull, []uint64{2}) != nil {
		t.Error("what it knows of its slowness outlives its leadership")
	}
	r.left = false
}

// A write that was compared with what the others have does not keep the driver awake.
func TestComparedWriteDoesNotWakeTheDriver(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	w := g.members[leader]
	g.slow = leader
	g.step(leader, Request{ID: 10, Command: put1("k", "v")})
	g.pass(DefaultElectionTimeout / 4)
	if i := len(w.replica.persisting); i == 0 || !w.replica.persisting[0].Compared() {
		t.Fatalf("of %d writes the first is not compared", i)
	}
	if got := w.replica.untilWriteIsSlow(); got != TickInterval {
		t.Errorf("it wakes after %v", got)
	}
}

// Too little is known to call a write slow before its time.
func TestWriteIsNotSlowBeforeItsTime(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	g.slow = leader
	g.step(leader, Request{ID: 10, Command: put1("k", "v")})
	g.pass(DefaultElectionTimeout / 6)
	if p := g.members[leader].replica.persisting; len(p) == 0 || !p[0].Compared() {
		t.Fatal("it was not compared with what the others have")
	}
	if slowLately(g.members[leader].replica) {
		t.Error("it is slow after a sixth of the election timeout")
	}
}

// The keys of ended leases are swept while there is nothing else to do, and after some patience all the same.
func TestSweepWaitsWhileEntriesAreWritten(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	r := w.replica
	for range 3 {
		r.sweeping, r.full, r.unswept = true, true, 0
		for i := range sweepPatience {
			if !r.sweeping {
				t.Fatalf("it sweeps after %d full steps", i)
			}
			r.sweep()
		}
		if r.sweeping {
			t.Error("it never sweeps")
		}
	}
}

// A new member needs ids, and a cluster in which it is exactly once.
func TestNewDatabaseNeedsIDsAndItsMember(t *testing.T) {
	for what, set := range map[string]func(*Config){
		"no cluster id":    func(c *Config) { c.ClusterID = 0 },
		"no member id":     func(c *Config) { c.MemberID = 0 },
		"not among them":   func(c *Config) { c.Members = []uint64{1, 2, 3} },
		"a member twice":   func(c *Config) { c.Members = []uint64{0x4d, 2, 2} },
		"a member without": func(c *Config) { c.Members = []uint64{0x4d, 0, 2} },
	} {
		t.Run(what, func(t *testing.T) {
			w := &world{t: t, fs: vfs.NewCrashableMem(), clock: clock.NewManual(clock.Instant{Raw: 1, Boot: 1}), domain: "test", configure: set}
			err := w.tryOpen()
			defer w.close()
			if err == nil || !strings.HasPrefix(err.Error(), "a new ") {
				t.Errorf("it is opened: %v", err)
			}
		})
	}
}
