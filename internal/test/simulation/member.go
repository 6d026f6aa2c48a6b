package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

const (
	clusterID = 0xc1
	// databaseDirectory is the path of a member's database on its file system.
	databaseDirectory = "db"
)

// member is a machine. A process on it drives a replica while up is set.
type member struct {
	staged uint64 // counts staged states, and numbers their directories
	w      *world
	index  int
	id     uint64
	name   string
	clocks *clockPair

	fs          *vfs.MemFS    // survives the process
	incarnation uint64        // of the data directory
	length      time.Duration // of the master lease that it requests as a leader; 0 means the default
	db          *pebble.DB
	replica     *replica.Replica
	spawned     bool // the machine founds the cluster, or was added to it
	removed     bool // the member was removed, and knows it
	life        int  // counts the processes on this machine
	up          bool // a process runs
	broken      bool // the disk has failed, and the process has yet to notice

	stopped int64 // the process is paused until this real time
	workDue bool  // work is on the agenda
	busy    bool  // the effects of the last step are not all performed
	inbox   []replica.Event
	wake    int // numbers the newest WakeAt

	writes  []write // committed and not yet reported, in order
	disk    int64   // the disk is busy until this real time
	slow    int64   // the disk is slow until this real time
	synced  int     // batches, of written, that are on the disk
	written int     // committed batches
	calls   map[uint64]*call
	leaving uint64   // the id of the Leave under way
	ordered []uint64 // the ids of the HandOvers under way
	serial  int64    // the newest revision that a serializable read saw here
}

// write is a batch that is on its way to the disk.
type write struct {
	sequence uint64
	number   int // the value of written after it
}

func newMember(w *world, index int) *member {
	return &member{
		w: w, index: index, id: uint64(index + 1), name: fmt.Sprintf("m%d", index+1), clocks: newClocks(w),
		fs: vfs.NewCrashableMem(), incarnation: w.dice.world.Uint64() | 1, spawned: index < w.swarm.members,
	}
}

// start starts a process on what the disk holds.
func (m *member) start() {
	if m.up || m.w.failure != nil || !m.spawned || m.removed {
		return
	}
	m.life++
	m.reconfigure()
	m.openDatabase()
	m.inbox, m.writes, m.calls = nil, nil, make(map[uint64]*call)
	m.ordered = nil
	m.busy, m.broken, m.workDue, m.stopped, m.leaving, m.serial = false, false, false, 0, 0, 0
	m.synced, m.written, m.disk = 0, 0, 0
	r, err := replica.Open(m.config())
	if err != nil {
		m.w.fail("a member starts from what it wrote", "%s: %v", m.name, err)
		return
	}
	m.replica, m.up = r, true
	m.w.note(m.name, "starts at", r.Applied(), r.Last())
	m.w.facts.started(m)
	m.event(replica.Tick{})
}

// lengths are the master leases of members in worlds where these differ.
var lengths = []time.Duration{300 * time.Millisecond, masterlease.DefaultDuration, 1500 * time.Millisecond}

// reconfigure draws another master lease for a member that starts. Its earlier promises had the earlier length.
func (m *member) reconfigure() {
	if !m.w.otherLengths {
		return
	}
	before := m.length
	m.length = lengths[m.w.dice.lengths.IntN(len(lengths))]
	if m.length < before {
		m.w.mark("a member started with a shorter master lease than before")
	}
}

func (m *member) config() replica.Config {
	w := m.w
	c := replica.Config{
		DB: m.db, Domain: clock.Domain(m.name), Now: m.clocks.now(w), ClusterID: clusterID, MemberID: m.id,
		Incarnation: m.incarnation, LogKeep: w.logKeep, Drift: w.drift, Eager: w.eager, MasterLease: m.length,
	}
	if m.index >= w.swarm.members {
		c.Joins = true
	} else if len(w.members) > 1 {
		for _, other := range w.founders() {
			c.Members = append(c.Members, other.id)
		}
	}
	return c
}

// openDatabase opens a new database twice, as a node does. In the write-ahead log of the first opening, a damaged record
// looks like an unfinished one.
func (m *member) openDatabase() {
	options := func() *pebble.Options {
		return &pebble.Options{
			FS: m.fs, FormatMajorVersion: pebble.FormatNewest, Logger: silent{},
			MemTableSize: 256 << 10, CacheSize: 1 << 20, DisableAutomaticCompactions: true, L0StopWritesThreshold: 1 << 20,
		}
	}
	if m.life == 1 {
		db, err := pebble.Open(databaseDirectory, options())
		if err == nil {
			err = db.Close()
		}
		m.must(err)
	}
	db, err := pebble.Open(databaseDirectory, options())
	m.must(err)
	m.db = db
}

// must panics on an error. A file system in memory returns none.
func (m *member) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", m.name, err))
	}
}

func (m *member) closeDatabase() {
	if m.db == nil {
		return
	}
	m.must(m.db.Close())
	m.db = nil
}

// end ends the process. With machineToo the machine loses its power, and everything that was not synced.
func (m *member) end(machineToo bool) {
	if !m.up {
		return
	}
	if !machineToo {
		m.must(m.db.LogData(nil, pebble.Sync)) // the system keeps what the process wrote
	}
	m.w.note(m.name, "ends", uint64(m.life), uint64(len(m.writes)))
	crashed := m.fs.CrashClone(vfs.CrashCloneCfg{})
	m.up, m.replica = false, nil
	m.closeDatabase()
	m.fs = crashed
}

// alive reports whether process number life still runs.
func (m *member) alive(life int) bool { return m.up && m.life == life }

// later calls do after d, unless this process has ended by then.
func (m *member) later(d time.Duration, do func()) {
	life := m.life
	m.w.after(d, func() {
		if m.alive(life) {
			do()
		}
	})
}

// event queues an event for the replica's next step.
func (m *member) event(e replica.Event) {
	if !m.up {
		return
	}
	m.inbox = append(m.inbox, e)
	m.workAfter(m.w.upTo(m.w.dice.world, 50*time.Microsecond))
}

func (m *member) workAfter(d time.Duration) {
	if m.workDue || m.busy {
		return
	}
	m.workDue = true
	m.later(max(d, time.Duration(m.stopped-m.w.now)), m.work)
}

// work does one step with the queued events.
func (m *member) work() {
	m.workDue = false
	if m.w.now < m.stopped {
		m.workAfter(0)
		return
	}
	if m.busy || len(m.inbox) == 0 {
		return
	}
	events := m.inbox
	m.inbox = nil
	now := m.now()
	m.w.facts.before(m, events)
	effects := slices.Collect(replica.Each(m.replica.Step(now, events...)))
	m.w.note(m.name, "step", uint64(len(events)), uint64(len(effects)))
	m.w.facts.stepped(m, now, events, effects)
	m.performFrom(effects, m.w.stumble)
}

// performFrom performs effects. With probability stumble the process pauses between two of them.
func (m *member) performFrom(effects []replica.Effect, stumble float64) {
	w := m.w
	if len(effects) > 0 && chance(w.dice.world, stumble) {
		rest := effects[w.dice.world.IntN(len(effects)):]
		effects = effects[:len(effects)-len(rest)]
		m.busy = true
		pause := w.upTo(w.dice.world, 5*time.Millisecond)
		if chance(w.dice.world, 0.3) {
			pause = w.upTo(w.dice.world, 3*time.Second)
			w.mark("paused between deciding and answering")
		}
		m.later(pause, func() { m.resume(rest) })
	}
	for _, e := range effects {
		m.perform(e)
	}
	if !m.busy && len(m.inbox) > 0 {
		m.workAfter(0)
	}
}

func (m *member) resume(effects []replica.Effect) {
	if m.w.now < m.stopped {
		m.later(time.Duration(m.stopped-m.w.now), func() { m.resume(effects) })
		return
	}
	m.busy = false
	for _, e := range effects {
		if m.up {
			m.perform(e)
		}
	}
	m.workAfter(0)
}

func (m *member) perform(effect replica.Effect) {
	switch e := effect.(type) {
	case replica.Persist:
		m.persist(e)
	case replica.Reply, replica.ReadAt, replica.Renewed:
		if !replica.Holds(effect, m.now) {
			m.w.mark("an answer was held back because its authority had ended")
		}
		answer := replica.Authorized(effect, m.now)
		if _, ok := answer.(replica.ReadAt); ok {
			m.w.readOfFork(m)
		}
		m.answer(answer)
	case replica.Send:
		if replica.Holds(e, m.now) {
			m.w.network.send(m, e.Message)
		}
	case replica.Ship:
		m.ship(e)
	case replica.Install:
		m.install(e)
	case replica.Discard:
		m.discard(e)
	case replica.Replaced, replica.Publish, replica.Reconfigured: // the world reads these before they are performed; it has no watchers and no connections
	case replica.WakeAt:
		m.wakeAfter(e.Wait)
	case replica.Halt:
		m.halt(e.Err)
	default:
		m.w.fail("every effect is known", "%s: %T", m.name, effect)
	}
}

func (m *member) wakeAfter(wait time.Duration) {
	m.wake++
	number := m.wake
	late := m.w.upTo(m.w.dice.world, 200*time.Microsecond)
	m.later(m.clocks.real(wait)+late, func() {
		if m.wake == number {
			m.event(replica.Tick{Wall: m.wall()})
		}
	})
}

// wall draws a time of day. It jumps by years, because nothing may rely on it.
func (m *member) wall() int64 {
	if !chance(m.w.dice.world, 0.05) {
		return 0
	}
	return m.w.dice.world.Int64N(4e12)
}

func (m *member) halt(err error) {
	if m.w.forked(m, err) || m.leftForGood(err) {
		return
	}
	if !m.broken {
		m.w.fail("a member halts only if its disk fails", "%s: %v", m.name, err)
		return
	}
	m.w.mark("halted by its disk")
	m.end(m.w.dice.faults.IntN(2) == 0) // a part of the failed write may be on the disk
	m.w.after(m.w.upTo(m.w.dice.faults, time.Second), m.start)
}

// persist commits a batch as a node does. The batch is in the database's log at once, and on the disk when reportWrite
// runs.
func (m *member) persist(p replica.Persist) {
	w := m.w
	m.must(p.Batch.Commit(pebble.NoSync))
	m.written++
	m.writes = append(m.writes, write{p.Sequence, m.written})
	m.disk = max(m.disk, w.now) + int64(w.diskDelay/2+w.upTo(w.dice.disk, w.diskDelay))
	if w.now < m.slow {
		m.disk = max(m.disk, w.now+int64(w.upTo(w.dice.disk, time.Duration(m.slow-w.now))))
	}
	m.later(time.Duration(m.disk-w.now), m.reportWrite)
}

func (m *member) reportWrite() {
	done := m.writes[0]
	m.writes = m.writes[1:]
	if m.broken {
		m.event(replica.Persisted{Sequence: done.sequence, Err: errDisk})
		return
	}
	if m.synced < done.number {
		m.must(m.db.LogData(nil, pebble.Sync))
		m.synced = m.written
	}
	m.event(replica.Persisted{Sequence: done.sequence})
}

// now reads the member's clocks.
func (m *member) now() clock.Instant { return m.clocks.now(m.w) }

// silent discards the database's log messages.
type silent struct{}

func (silent) Infof(string, ...any)      {}
func (silent) Errorf(string, ...any)     {}
func (silent) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
