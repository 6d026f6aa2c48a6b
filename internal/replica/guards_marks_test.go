package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Each test of this file checks guards of marks and finishes, and fails if exactly one of them is removed.

// history returns the tenures of a name, newest first.
func (w *world) history(db pebble.Reader, name string) []record.Tenure {
	w.t.Helper()
	past, err := record.History(db, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return past
}

// markOf returns the mark of a name in the keyspace.
func (w *world) markOf(name string) string {
	w.t.Helper()
	found, err := w.replica.Store().Range(w.t.Context(), keyspace.RangeRequest{Key: record.MarkKey(name)})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(found.KVs) == 0 {
		return ""
	}
	return string(found.KVs[0].Value)
}

// The mark and the end of the tenure share a revision, and the next holder's tenure begins at it.
func TestMarkAndReleaseShareARevision(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	reply := w.inOneEntry(claimOf(7, "n", false), claimOf(8, "n", true), ownership.Finish{Name: "n", Lease: 7, Tick: "5"})
	before, after := reply(1).Header.Revision, reply(2).Header.Revision
	if reply(2).Err != nil || after != before+1 {
		t.Errorf("the finish went from revision %d to %d: %v", before, after, reply(2).Err)
	}
	if s := w.replica.names.State(w.replica.view(), "n"); s.Lease != 8 || s.Revision != after || w.markOf("n") != "3 5" {
		t.Errorf("%s; the mark is %q", showState(s), w.markOf("n"))
	}
	if _, there := w.replica.lessor.Lookup(7); there {
		t.Error("the lease is still there")
	}
}

// A finish whose tick is not recorded changes nothing at all: not for the tick of another kind, and not for a mark that
// cannot be read.
func TestFinishWithoutItsMarkChangesNothing(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, keyspace.PutRequest{Key: record.MarkKey("times"), Value: []byte("0 2026-03-01T12:00:00Z")})
	w.do(2, keyspace.PutRequest{Key: record.MarkKey("damaged"), Value: []byte("x")})
	for i, c := range []struct {
		name string
		want error
	}{{"times", backend.ErrInvalid}, {"damaged", backend.ErrCorrupt}} {
		id := uint64(10 * (i + 1))
		w.do(id, claimOf(20+lessor.ID(i), c.name, false))
		revision := w.replica.store.Revision()
		for j, op := range []entry.Command{
			ownership.Finish{Name: c.name, Lease: 20 + lessor.ID(i), Tick: "1"},
			ownership.Finish{Name: c.name, Lease: 20 + lessor.ID(i), Tick: "1", Hold: time.Hour},
			ownership.RaiseMark{Name: c.name, Lease: 20 + lessor.ID(i), Tick: "1"},
		} {
			if r := w.do(id+1+uint64(j), op); !errors.Is(r.Err, c.want) {
				t.Errorf("%s: %T: %v", c.name, op, r.Err)
			}
		}
		s := w.replica.names.State(w.replica.view(), c.name)
		if !s.Held || s.Finished || s.TTL != time.Minute || w.replica.store.Revision() != revision {
			t.Errorf("%s at revision %d, before %d", showState(s), w.replica.store.Revision(), revision)
		}
	}
}

// After the name was forgotten, or its tenures were overwritten, the token in the mark says that the tenure was finished.
func TestMarkRecognizesAFinishOfAForgottenTenure(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, keyspace.PutRequest{Key: record.MarkKey("n"), Value: []byte("5 10")})
	for i, c := range []struct {
		token int64
		tick  string
		want  error
	}{
		{5, "10", nil},
		{5, "9", nil},
		{5, "11", ownership.ErrLost},
		{5, "1970-01-01T00:00:09Z", ownership.ErrLost},
		{5, "", ownership.ErrLost},
		{4, "10", ownership.ErrLost},
		{0, "10", ownership.ErrLost},
	} {
		if r := w.do(uint64(2+i), ownership.Finish{Name: "n", Lease: 7, Token: c.token, Tick: c.tick}); !errors.Is(r.Err, c.want) || (r.Err == nil) != (c.want == nil) {
			t.Errorf("%+v: %v", c, r.Err)
		}
	}
	for i, c := range []struct {
		token int64
		want  error
	}{{5, nil}, {4, ownership.ErrLost}, {0, ownership.ErrLost}} {
		if r := w.do(uint64(12+i), ownership.RaiseMark{Name: "n", Lease: 7, Token: c.token, Tick: "10"}); !errors.Is(r.Err, c.want) || (r.Err == nil) != (c.want == nil) {
			t.Errorf("raise with token %d: %v", c.token, r.Err)
		}
	}
	w.do(20, keyspace.PutRequest{Key: record.MarkKey("m"), Value: []byte("0 10")})
	if r := w.do(21, ownership.Finish{Name: "m", Lease: 7, Tick: "10"}); !errors.Is(r.Err, ownership.ErrLost) {
		t.Errorf("without a token: %v", r.Err)
	}
}

// A server remembers a bounded number of free names. The marks of the others stay, also over a restart.
func TestMarkOutlivesAForgottenName(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	w.do(1, ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour})
	token := w.replica.names.State(w.replica.view(), "n").Token
	w.putFreeNames(1 << 30) // as if that many will become free after n
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	w.serve()
	if r := w.do(2, ownership.Finish{Name: "n", Lease: 1, Tick: "7"}); r.Err != nil {
		t.Fatal(r.Err)
	}
	want := backend.Mark{Tick: backend.TickNumber(7), Token: backend.Token(token)}.Text()
	for _, restarts := range []bool{false, true} {
		if restarts {
			if err := w.reopened(); err != nil {
				t.Fatal(err)
			}
			w.serve()
		}
		if _, _, known := w.replica.names.Waiters("n"); known {
			t.Fatal("the name is still known")
		}
		if got := w.markOf("n"); got != want {
			t.Errorf("restarted %v: the mark is %q, want %q", restarts, got, want)
		}
	}
}

// A mark has no lease, so it outlives the lease with which a client of etcd's API wrote it.
func TestRaisedMarkHasNoLease(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, entry.Grant{Lease: 1, TTL: time.Minute})
	w.do(2, keyspace.PutRequest{Key: record.MarkKey("n"), Value: []byte("0 1"), Lease: 1})
	w.do(3, claimOf(7, "n", false))
	if r := w.do(4, ownership.RaiseMark{Name: "n", Lease: 7, Tick: "2"}); r.Err != nil {
		t.Fatal(r.Err)
	}
	w.do(5, entry.Revoke{Lease: 1})
	if got := w.markOf("n"); got != "3 2" {
		t.Errorf("the mark is %q", got)
	}
	revision := w.replica.store.Revision()
	if r := w.do(6, ownership.RaiseMark{Name: "n", Lease: 7, Tick: "2"}); r.Err != nil || w.replica.store.Revision() != revision {
		t.Errorf("raised again: %v, revision %d after %d", r.Err, w.replica.store.Revision(), revision)
	}
}

// A name that is held on ends because of time, and one that was revoked meanwhile because it was revoked.
func TestHeldOnNameExpires(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	for i, revoked := range []bool{false, true} {
		id, lease := uint64(10*i+1), 7+lessor.ID(i)
		w.do(id, claimOf(lease, "n", false))
		if r := w.do(id+1, ownership.Finish{Name: "n", Lease: lease, Hold: 2 * time.Second}); r.Err != nil {
			t.Fatal(r.Err)
		}
		if revoked {
			w.do(id+2, ownership.Revoke{Name: "n", Note: "why"})
		}
		w.advance(3 * time.Second)
		view := w.flushed()
		past := w.history(view, "n")
		want := ownership.WhyExpired
		if revoked {
			want = ownership.WhyRevoked
		}
		if len(past) != i+1 || past[0].Lease != lease || past[0].Why != want {
			t.Errorf("revoked %v: %+v", revoked, past)
		}
		view.Close()
	}
}

// A leader takes on a finish only once it knows that all members can apply one. From the first one on, also after a start,
// it does not ask again.
func TestLeaderWaitsUntilAllMembersKnowFinishes(t *testing.T) {
	g := newTeam(t, 3)
	old := uint64(0) // the member of an older version
	g.cut = func(m Message) bool { return m.From == old && m.Level > 0 }
	leader := g.elected()
	old = g.follower(leader)
	g.members[leader].replica.gates.Hear(old, 0)
	g.pass(time.Second)
	finish := func(id uint64) error {
		g.step(leader, Request{ID: id, Command: ownership.Finish{Name: "n", Lease: 7}})
		g.pass(100 * time.Millisecond)
		r, _ := g.replyTo(leader, id).(Reply)
		return r.Err
	}
	if err := finish(1); !errors.Is(err, ErrTooNew) {
		t.Errorf("with an old member: %v", err)
	}
	if r := g.order(leader, 10, Inspection{ID: 10, Query: MarksQuery{}}); !errors.Is(r.Err, ErrTooNew) {
		t.Errorf("asked with an old member: %v", r.Err)
	}
	old = 0
	g.pass(time.Second)
	if r := g.order(leader, 11, Inspection{ID: 11, Query: MarksQuery{}}); r.Err != nil {
		t.Errorf("asked with new members: %v", r.Err)
	}
	if err := finish(2); !errors.Is(err, ownership.ErrLost) {
		t.Errorf("with new members: %v", err)
	}
	w := g.members[leader]
	w.replica.gates.Hear(g.follower(leader), 0)
	if err := finish(3); !errors.Is(err, ownership.ErrLost) {
		t.Errorf("after the first one: %v", err)
	}
	w.flush()
	if err := w.db.Flush(); err != nil {
		t.Fatal(err)
	}
	level := new(logpb.Level)
	if _, err := record.Load(w.db, record.KeyLevel, level); err != nil || level.Level != uint32(gate.Marks) {
		t.Errorf("stored is %v, %v", level, err)
	}
	if err := w.reopened(); err != nil || w.replica.Versions().InUse != gate.Marks {
		t.Errorf("after a start: %+v, %v", w.replica.Versions(), err)
	}
}

// A refusal because of an old member is definite. In its first moments a leader asks for a repetition instead: other
// members may be about to say what they know, and its log may have such a command that it has yet to apply.
func TestNewLeaderWaitsToHearAllMembers(t *testing.T) {
	silent := uint64(3)
	g := newTeam(t, 3)
	g.cut = func(m Message) bool { return m.From == silent }
	leader := g.elected()
	ask := func(id uint64, want error) {
		t.Helper()
		if r := g.order(leader, id, Request{ID: id, Command: ownership.Finish{Name: "n", Lease: 7}}); !errors.Is(r.Err, want) {
			t.Errorf("request %d: %v", id, r.Err)
		}
	}
	if leader == silent {
		t.Fatal("the silent member leads")
	}
	ask(1, ErrNoLeader)
	g.pass(DefaultReadTimeout + 10*time.Millisecond)
	ask(2, ErrTooNew)
	r := g.members[leader].replica
	r.serving = false
	ask(3, ErrNoLeader)
	r.serving = true
	r.gates.Hear(silent, 0)
	r.served = r.now
	ask(4, ErrTooNew)
}
