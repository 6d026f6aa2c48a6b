package replica

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// commit puts data into the log as one entry, no matter who may have written it, and lets it be applied. It
// returns why the replica halted, or nil.
func (w *world) commit(data []byte) error {
	w.t.Helper()
	if err := w.replica.raft.Propose(data); err != nil {
		w.t.Fatalf("raft does not take the entry: %v", err)
	}
	return w.drive(Tick{})
}

// drive is step and settle for a replica that is allowed to halt.
func (w *world) drive(events ...Event) error {
	w.t.Helper()
	for range 1000 {
		w.effects = slices.Collect(Each(w.replica.Step(w.clock.Now(), events...)))
		for _, e := range w.effects {
			if h, ok := e.(Halt); ok {
				if again := w.replica.Step(w.clock.Now(), Tick{}); h.Err == nil || again != nil {
					w.t.Fatalf("halted with %v, and then did %v", h.Err, again)
				}
				return h.Err
			}
			w.perform(e)
		}
		if len(w.writes) == 0 {
			return nil
		}
		events = []Event{Persisted{Sequence: w.writes[0].Sequence}}
		w.writes = w.writes[1:]
	}
	w.t.Fatal("the replica never rests")
	return nil
}

// encoded is a command as the log has it.
func encoded(c entry.Command) *logpb.Command {
	p, m := entry.Prepare(c, access.Caller{}), new(logpb.Entry)
	text := entry.New(entry.Header{}, slices.Values([]*entry.Prepared{&p}))
	if err := proto.Unmarshal(text, m); err != nil {
		panic(err)
	}
	return m.Commands[0]
}

// logEntries are payloads of every kind of command, and some that no member writes.
func logEntries(f *testing.F) [][]byte {
	ref := func(id int64, generation uint64) *logpb.LeaseRef {
		return &logpb.LeaseRef{Id: id, Generation: generation}
	}
	first := uint64(lessor.At(2, 0)) // of lease 1 in FuzzLogEntry
	commands := func(c ...*logpb.Command) *logpb.Entry { return &logpb.Entry{Sequence: 99, Commands: c} }
	grant := func(id int64, ttl time.Duration) *logpb.Command {
		return encoded(entry.Grant{Lease: lessor.ID(id), TTL: ttl})
	}
	expire := func(e *logpb.Expire) *logpb.Command { return &logpb.Command{Op: &logpb.Command_Expire{Expire: e}} }
	checkpoint := func(c *logpb.Checkpoint) *logpb.Command {
		return &logpb.Command{Op: &logpb.Command_Checkpoint{Checkpoint: c}}
	}
	remaining := func(ns int64) *logpb.Command {
		return checkpoint(&logpb.Checkpoint{Term: 1, DecidedAt: first + 1<<16, Quiet: []*logpb.Remaining{{Lease: ref(1, first), RemainingNs: ns}}})
	}
	entries := [][]byte{nil, {0xff}, {0x12, 0x00}, bytes.Repeat([]byte{0x12, 0x02, 0x22, 0x00}, 1000)}
	for _, m := range []*logpb.Entry{
		commands(encoded(keyspace.PutRequest{Key: []byte("a"), Lease: 1, PrevKV: true}), encoded(keyspace.DeleteRequest{Key: []byte("a"), End: []byte{0}})),
		commands(encoded(keyspace.PutRequest{}), encoded(keyspace.DeleteRequest{}), encoded(entry.Compact{Revision: 2}), encoded(entry.Compact{Revision: -1})),
		commands(encoded(keyspace.TxnRequest{
			Compare: []keyspace.Compare{{Key: []byte("a"), Target: 77, Result: -3}},
			Success: []keyspace.TxnOp{nil, keyspace.PutRequest{Key: []byte("b")}, keyspace.TxnRequest{}},
		})),
		commands(grant(2, time.Second), grant(0, time.Second), grant(3, 0), grant(4, -1), grant(5, lessor.MaxTTL+1), grant(-6, 1)),
		commands(encoded(entry.Revoke{Lease: 1}), encoded(entry.Revoke{Lease: 1}), encoded(entry.Revoke{Lease: 0})),
		commands(expire(&logpb.Expire{Term: 1, DecidedAt: first + 1<<16, Leases: []*logpb.LeaseRef{ref(1, first), ref(1, 0), nil}})),
		commands(expire(&logpb.Expire{Term: 1 << 63, DecidedAt: 1<<64 - 1, Leases: []*logpb.LeaseRef{ref(1, first)}})),
		commands(remaining(int64(time.Second))), commands(remaining(-1)), commands(remaining(1 << 62)),
		commands(
			encoded(ownership.Claim{Lease: 2, Name: "n", TTL: time.Second}), encoded(ownership.Claim{Lease: 3, Name: "n", TTL: time.Second, Wait: true}),
			encoded(ownership.Pin{Name: "n", Reason: "r"}), encoded(ownership.Transfer{Name: "n", Lease: 2}), encoded(ownership.Unpin{Name: "n"}), encoded(ownership.Transfer{Name: "n", Lease: 2}),
			encoded(ownership.Revoke{Name: "n", Note: "x"}), encoded(ownership.Release{Name: "n", Lease: 3}),
		),
		commands(
			encoded(ownership.Claim{Name: "n", TTL: time.Second}), encoded(ownership.Claim{Lease: -2, Name: "n", TTL: time.Second}),
			encoded(ownership.Claim{Lease: 2, TTL: time.Second}), encoded(ownership.Claim{Lease: 2, Name: "n"}), encoded(ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour}),
			encoded(ownership.Claim{Lease: 4, Name: "/", TTL: 1}), encoded(ownership.Claim{Lease: 5, Name: "a\x00", TTL: 1, Holder: []byte{0xff}}),
			encoded(ownership.Release{Name: "", Lease: 1}), encoded(ownership.Revoke{Now: true}), encoded(ownership.Pin{}), encoded(ownership.Unpin{}),
		),
		commands(
			encoded(keyspace.PutRequest{Key: []byte("n/1")}), encoded(ownership.Claim{Lease: 2, Name: "n", TTL: 1, Wait: true}),
			encoded(keyspace.PutRequest{Key: []byte("n/1"), Lease: 1}), encoded(ownership.Revoke{Name: "n", Now: true}),
			encoded(keyspace.DeleteRequest{Key: []byte{0}, End: []byte{0}}),
		),
		commands(
			encoded(ownership.Claim{Lease: 2, Name: "n", TTL: time.Second}), encoded(ownership.RaiseMark{Name: "n", Lease: 2, Tick: "1"}),
			encoded(ownership.Finish{Name: "n", Lease: 2, Tick: "2", Hold: time.Second}), encoded(ownership.Finish{Name: "n", Lease: 2}),
			encoded(keyspace.PutRequest{Key: record.MarkKey("n"), Value: []byte("x"), Lease: 1}), encoded(ownership.Claim{Lease: 3, Name: "m", TTL: time.Second}),
			encoded(ownership.Finish{Name: "m", Lease: 3}), encoded(ownership.Finish{Name: "n", Lease: 2, Token: 2, Tick: "2"}),
		),
		commands(
			encoded(ownership.Claim{Lease: 2, Name: "n", TTL: time.Second}), encoded(ownership.Claim{Lease: 3, Name: "n", TTL: time.Second, Wait: true}),
			encoded(ownership.Claim{Lease: 4, Name: "n", TTL: time.Second, Wait: true, Priority: 1}), encoded(ownership.Prefer{Name: "n", Lease: 3}),
			encoded(ownership.Prefer{Name: "n", Lease: 2}), encoded(ownership.Release{Name: "n", Lease: 2}),
		),
		commands(encoded(ownership.Finish{}), encoded(ownership.RaiseMark{Tick: "1"}), encoded(ownership.Finish{Name: "n", Lease: 1, Hold: -1})),
		commands(&logpb.Command{Op: &logpb.Command_Finish{Finish: &logpb.Finish{Name: []byte("n"), Id: 1, Tick: []byte("no tick")}}}),
		commands(checkpoint(&logpb.Checkpoint{Term: 1, Cleared: []*logpb.LeaseRef{ref(1, first), ref(9, 9), {}}})),
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		entries = append(entries, data)
	}
	return entries
}

// FuzzLogEntry applies any bytes as a log entry. A member may halt with an error, and then does so at every start.
// Otherwise it continues, and reads after a restart what it wrote.
func FuzzLogEntry(f *testing.F) {
	for _, data := range logEntries(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t)
		defer func() { w.close() }()
		w.serve()
		w.do(1, entry.Grant{Lease: 1, TTL: time.Hour})
		w.do(2, keyspace.PutRequest{Key: []byte("a"), Value: []byte("1"), Lease: 1})
		halted := w.commit(data)
		if halted == nil {
			if reply := w.do(3, putKey("answers")); reply.Err != nil {
				t.Fatalf("a put after it: %v", reply.Err)
			}
		}
		want := w.dump()

		replayed := w.crashed(nil) // what it applied was not synced
		replayed.start()
		defer replayed.close()
		again := replayed.drive(Tick{})
		if (halted == nil) != (again == nil) {
			t.Fatalf("at first the replica halted with %v, and at the next start with %v", halted, again)
		}
		if halted == nil && replayed.dump() != want {
			t.Fatalf("applied again:\n%s\nat first:\n%s", replayed.dump(), want)
		}

		if err := w.db.Flush(); err != nil {
			t.Fatal(err)
		}
		kept := w.crashed(nil) // what it applied is there
		kept.start()
		defer kept.close()
		if again := kept.drive(Tick{}); (halted == nil) != (again == nil) {
			t.Fatalf("at first the replica halted with %v, and at a start from its state with %v", halted, again)
		}
		if halted == nil && kept.dump() != want {
			t.Fatalf("read again:\n%s\nat first:\n%s", kept.dump(), want)
		}
	})
}
