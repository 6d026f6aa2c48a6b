package node

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// world is a replica that a test drives, with a clock moved by hand and a disk in memory.
type world struct {
	t       testing.TB
	fs      *vfs.MemFS
	db      *pebble.DB
	clock   *clock.Manual
	replica *replica.Replica
	writes  []replica.Persist // committed and not reported yet
}

// newWorld returns a world whose clock shows what the machine's shows now, and whose replica is open and has done
// nothing yet.
func newWorld(t testing.TB) *world {
	w := &world{t: t, fs: vfs.NewCrashableMem(), clock: clock.NewManual(clock.Now())}
	w.open()
	return w
}

func (w *world) open() {
	w.t.Helper()
	options := datadir.DatabaseOptions(w.fs, func(err error) { w.t.Errorf("the database halts: %v", err) })
	db, err := datadir.OpenDatabase("db", options)
	if err != nil {
		w.t.Fatal(err)
	}
	w.db = db
	w.replica, err = replica.Open(replica.Config{
		DB: db, Domain: "test", Now: w.clock.Now(), ClusterID: 0xc1, MemberID: 0x4d, Incarnation: 0x1c,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	w.t.Helper()
	if err := w.db.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// crashed returns a world that goes on from what this one's disk would hold after a power cut.
func (w *world) crashed() *world {
	return &world{t: w.t, fs: w.fs.CrashClone(vfs.CrashCloneCfg{}), clock: clock.NewManual(w.clock.Now())}
}

// step lets the replica see events, and writes what it wants written, but reports no write.
func (w *world) step(events ...replica.Event) (all []replica.Effect) {
	w.t.Helper()
	for effect := range replica.Each(w.replica.Step(w.clock.Now(), events...)) {
		if p, ok := effect.(replica.Persist); ok {
			if err := w.db.Apply(p.Batch, pebble.Sync); err != nil {
				w.t.Fatal(err)
			}
			w.writes = append(w.writes, p)
		}
		all = append(all, effect)
	}
	return all
}

// settle reports all writes, and has all entries applied.
func (w *world) settle() (all []replica.Effect) {
	w.t.Helper()
	for i := 0; len(w.writes) > 0 || w.replica.Applied() < w.replica.Last(); i++ {
		if i > 1000 {
			w.t.Fatal("the replica never comes to rest")
		}
		event := replica.Event(replica.Tick{})
		if len(w.writes) > 0 {
			event = replica.Persisted{Sequence: w.writes[0].Sequence}
			w.writes = w.writes[1:]
		}
		all = append(all, w.step(event)...)
	}
	return all
}

// serve leads the replica through its election.
func (w *world) serve() *world {
	w.t.Helper()
	w.step(replica.Tick{})
	w.settle()
	if !w.replica.Serving() {
		w.t.Fatal("the replica does not serve")
	}
	return w
}

// do has a request carried out.
func (w *world) do(id uint64, op entry.Command) {
	w.t.Helper()
	for _, effect := range append(w.step(replica.Request{ID: id, Command: op}), w.settle()...) {
		if reply, ok := effect.(replica.Reply); ok && reply.ID == id {
			if reply.Err != nil {
				w.t.Fatal(reply.Err)
			}
			return
		}
	}
	w.t.Fatalf("request %d has no reply", id)
}
