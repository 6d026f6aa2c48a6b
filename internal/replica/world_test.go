package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// world drives a Replica with clocks moved by hand and a disk in memory that loses at a crash what was not
// synced. It is the test's counterpart of Node.
type world struct {
	t         testing.TB
	fs        *vfs.MemFS
	db        *pebble.DB
	clock     *clock.Manual
	domain    clock.Domain
	logKeep   uint64
	logStep   int
	maxLeases int
	replica   *Replica

	retention time.Duration         // that of Config
	configure func(*Config)         // changes it further
	database  func(*pebble.Options) // changes those of the database; may be nil

	sync    *pebble.WriteOptions // what a Persist is committed with; anything but pebble.Sync is a bug to be found
	effects []Effect             // of the newest step
	writes  []Persist            // committed by the disk and not reported yet
	inbox   []Event              // messages of others that have come

	mayHalt bool
	halted  error // why the replica did

	installs, discards int      // of whole states, so far
	holdInstall        bool     // an Install is not performed until installNow
	held               *Install // that is not performed
}

func newWorld(t testing.TB) *world { return newWorldOf(t, func(*world) {}) }

func newWorldOf(t testing.TB, set func(*world)) *world {
	w := &world{
		t: t, fs: vfs.NewCrashableMem(), clock: clock.NewManual(clock.Instant{Raw: int64(time.Hour), Boot: int64(time.Hour)}),
		domain: "test", sync: pebble.Sync,
	}
	set(w)
	w.start()
	return w
}

// start starts a replica from what the disk holds, and does not let it do anything yet.
func (w *world) start() {
	w.t.Helper()
	if err := w.tryOpen(); err != nil {
		w.t.Fatalf("the replica does not open: %v", err)
	}
}

func (w *world) tryOpen() error {
	options := datadir.DatabaseOptions(w.fs, func(err error) { w.t.Errorf("the database halts: %v", err) })
	options.MemTableSize, options.CacheSize = 256<<10, 1<<20 // opened a thousand times over
	if w.database != nil {
		w.database(options)
	}
	db, err := datadir.OpenDatabase("db", options)
	if err != nil {
		return err
	}
	w.db, w.writes = db, nil
	config := Config{
		DB: db, Domain: w.domain, Now: w.clock.Now(), ClusterID: 0xc1, MemberID: 0x4d, Incarnation: 0x1c, Retention: w.retention,
		LogKeep: w.logKeep, LogStep: w.logStep, MaxLeases: w.maxLeases,
	}
	if w.configure != nil {
		w.configure(&config)
	}
	w.replica, err = Open(config)
	return err
}

func (w *world) close() {
	w.t.Helper()
	if err := w.db.Close(); err != nil {
		w.t.Fatalf("the database does not close: %v", err)
	}
}

// crashed returns a world that continues from what this world's disk would hold after a power cut: everything that
// was synced and, if rng is given, any part of the rest.
func (w *world) crashed(rng *rand.Rand) *world {
	cut := vfs.CrashCloneCfg{}
	if rng != nil {
		cut = vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}
	}
	return &world{
		t: w.t, fs: w.fs.CrashClone(cut), clock: clock.NewManual(w.clock.Now()),
		domain: w.domain, logKeep: w.logKeep, sync: pebble.Sync, retention: w.retention, configure: w.configure,
	}
}

// step lets the replica see events, and writes what it wants written, but reports no write.
func (w *world) step(events ...Event) []Effect {
	w.effects = lasting(w.replica.Step(w.clock.Now(), events...))
	for _, e := range w.effects {
		w.perform(e)
	}
	return w.effects
}

// lasting are effects one by one, without memory that the next Step uses again.
func lasting(effects []Effect) []Effect {
	all := slices.Collect(Each(effects))
	for i, effect := range all {
		if p, ok := effect.(Publish); ok {
			p.Names = slices.Clone(p.Names)
			all[i] = p
		}
	}
	return all
}

// answer puts to the replica what it can answer from memory, and returns the events that are left for Step.
func (w *world) answer(events []Event) (effects []Effect, left []Event) {
	for _, event := range events {
		some, ok := w.replica.Answer(w.clock.Now(), event)
		if !ok {
			left = append(left, event)
		}
		effects = append(effects, some...)
	}
	return effects, left
}

func (w *world) perform(e Effect) {
	if h, ok := e.(Halt); ok {
		if w.halted = h.Err; !w.mayHalt {
			w.t.Fatalf("the replica halts: %v", h.Err)
		}
		return
	}
	if p, ok := e.(Persist); ok {
		if err := p.Batch.Commit(w.sync); err != nil {
			w.t.Fatalf("commit: %v", err)
		}
		w.writes = append(w.writes, p)
	}
	w.performState(e)
}

// report reports to the replica the oldest unreported write.
func (w *world) report() []Effect {
	p := w.writes[0]
	w.writes = w.writes[1:]
	return w.step(Persisted{Sequence: p.Sequence})
}

// settle reports writes until there are none, and returns all effects meanwhile.
func (w *world) settle() []Effect {
	var all []Effect
	for i := 0; len(w.writes)+len(w.replica.deferred) > 0; i++ {
		if i > 1000 {
			w.t.Fatal("the replica never rests")
		}
		if len(w.replica.deferred) > 0 {
			if w.wait() > 0 {
				w.t.Fatal("something is left to be applied, and the replica does not ask for it")
			}
			all = append(all, w.step(Tick{})...)
		} else {
			all = append(all, w.report()...)
		}
	}
	return all
}

// serve leads the replica through its election.
func (w *world) serve() *world {
	w.t.Helper()
	w.step(Tick{})
	w.settle()
	if !w.replica.Serving() {
		w.t.Fatal("the replica does not serve")
	}
	return w
}

// advance lets time pass as a driver would: it calls Step whenever the replica asked for it, and lets
// everything settle each time.
func (w *world) advance(d time.Duration) []Effect {
	var all []Effect
	for d > 0 {
		step := max(1, min(d, w.wait()))
		w.clock.Advance(step)
		d -= step
		all = append(all, w.step(Tick{})...)
		all = append(all, w.settle()...)
	}
	return all
}

// wait is what the newest WakeAt asked for.
func (w *world) wait() time.Duration {
	for _, e := range slices.Backward(w.effects) {
		if wake, ok := e.(WakeAt); ok {
			return wake.Wait
		}
	}
	return TickInterval
}

// tidy lets the replica remove what it has to.
func (w *world) tidy() {
	w.t.Helper()
	for i := 0; w.wait() == 0; i++ {
		if i > 1000 {
			w.t.Fatal("the replica never has removed everything")
		}
		w.step(Tick{})
		w.settle()
	}
}

// do sends a request and returns its reply.
func (w *world) do(id uint64, op entry.Command) Reply {
	w.t.Helper()
	return w.replyTo(id, append(w.step(Request{ID: id, Command: op}), w.settle()...))
}

func (w *world) replyTo(id uint64, effects []Effect) Reply {
	w.t.Helper()
	for _, e := range effects {
		if r, ok := e.(Reply); ok && r.ID == id {
			return r
		}
	}
	w.t.Fatalf("request %d has no reply in %v", id, effects)
	return Reply{}
}

// dump shows the replicated state: keys with all that belongs to them, and leases with their bindings.
func (w *world) dump() string {
	w.t.Helper()
	var b strings.Builder
	store := w.replica.Store()
	got, err := store.Range(context.Background(), keyspace.RangeRequest{Key: []byte{0}, End: []byte{0}})
	if err != nil {
		w.t.Fatalf("range: %v", err)
	}
	fmt.Fprintf(&b, "revision %d\n", got.Revision)
	if compacted := store.CompactRevision(); compacted >= 0 {
		fmt.Fprintf(&b, "compacted to %d\n", compacted)
	}
	for _, kv := range got.KVs {
		fmt.Fprintf(&b, "%s=%s create %d mod %d version %d lease %x\n",
			kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
	}
	l := w.replica.Lessor()
	byID := make(map[lessor.ID]lessor.Lease)
	for _, lease := range l.Leases() {
		byID[lease.ID] = lease
	}
	for _, id := range sortedIDs(byID) {
		fmt.Fprintf(&b, "lease %x of %v ttl %v items %v", int64(id), byID[id].Generation, byID[id].TTL, l.Items(id))
		if byID[id].Pinned || byID[id].RenewalRefused {
			fmt.Fprintf(&b, " pinned %v renewal refused %v", byID[id].Pinned, byID[id].RenewalRefused)
		}
		if owner := w.replica.quotas.Owner(id); owner != "" {
			fmt.Fprintf(&b, " of %s, who has %+v", owner, w.replica.quotas.Usage(owner))
		}
		b.WriteByte('\n')
	}
	w.dumpNames(&b)
	return b.String()
}

// render shows an effect to the last byte.
func render(e Effect) string {
	if p, ok := e.(Persist); ok {
		return fmt.Sprintf("persist #%d %x", p.Sequence, p.Batch.Repr())
	}
	var err error
	switch e := e.(type) {
	case Reply:
		err = e.Err
	case Halt:
		err = e.Err
	}
	text, jsonErr := json.Marshal(e)
	return fmt.Sprintf("%T %s %v %v", e, text, err, jsonErr)
}
