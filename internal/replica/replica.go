package replica

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/histogram"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

const (
	// TickInterval is how often a driver sends [Tick] at the least.
	TickInterval = 100 * time.Millisecond

	// pauseTicks is the number of missed ticks from which on a driver counts as having been paused.
	pauseTicks = 2
	// minElectionTicks is handed to raft at the least. Its own election timer is never driven, since elections are
	// ours; but in so many ticks a leader notices that it has lost the others, or that a hand-over does not succeed.
	minElectionTicks = 3

	// maxProposed bounds the entries that are proposed and not applied: what comes meanwhile waits, and is counted.
	maxProposed = 64
	// maxInflight bounds what is on its way to one other member.
	maxInflight, maxInflightBytes = 256, 16 << 20
	// maxApplyBytes bounds the log entries that one batch applies, so that other events get their turn: one entry of bulk,
	// or some milliseconds. maxSendBytes bounds those of one message.
	maxApplyBytes = 256 << 10
	maxSendBytes  = 2 << 20
	// sweepKeys bounds the keys of ended leases that one Step removes.
	sweepKeys = 128
	// sweepPatience is how many Steps with entries to write or apply may pass until one sweeps all the same.
	sweepPatience = 8
	// trimKeys bounds the keys of which one Step removes compacted versions.
	trimKeys = 256

	// maxWaiters bounds the renewals that wait for a decision about their lease. After a restart the first renewal of
	// every lease waits, for as long as one write takes.
	maxWaiters = 1 << 18

	// LogKeep is the number of applied entries that truncation leaves, and after so many more it comes again.
	LogKeep = 10_000
)

// forever is the end of an authority that needs nobody else's promise: that of a group's only voter.
var forever = clock.Instant{Raw: math.MaxInt64, Boot: math.MaxInt64}

// Config is what a Replica is made of.
type Config struct {
	// DB is the open database. The replica reads and writes it but never closes it.
	DB *pebble.DB
	// Domain says which clocks the instants handed to Step are read on.
	Domain clock.Domain
	// Now is the instant at which the process started.
	Now clock.Instant
	// ClusterID and MemberID are used when the database is new; both must be random and not zero. In a group of
	// several they are the same at every start.
	ClusterID, MemberID uint64
	// Incarnation is used when the database is new. It must be random and not zero.
	Incarnation uint64
	// Members are the ids of a group of several, MemberID among them; none means that this member is alone. They are
	// those that the group was founded with.
	Members []uint64
	// ElectionTimeout is for how long the others do without a leader; 0 means [DefaultElectionTimeout].
	ElectionTimeout time.Duration
	// MasterLease is for how long a leader asks the others not to elect another; 0 means the default of
	// [masterlease.HolderConfig]. If it is longer than ElectionTimeout, a failover takes longer by the difference.
	MasterLease time.Duration
	// Drift bounds the rates of the members' clocks; 0 means [clock.DefaultDrift].
	Drift clock.Drift
	// ReadTimeout bounds how long a question waits for a leader, or for its lease; 0 means [DefaultReadTimeout].
	ReadTimeout time.Duration
	// Eager is for simulations: this member campaigns as soon as it may, and votes as soon as it may, so that nothing
	// but its promises stands in the way of another leader.
	Eager bool
	// MaxLeases bounds the leases that clients can have at a time; 0 means any number.
	MaxLeases int
	// MaxRequestBytes bounds the keys and values of one request; 0 means [DefaultMaxRequestBytes].
	MaxRequestBytes int
	// AnswerBytes bounds the memory of answers to requests that write, while they are not collected, and a sixteenth of it
	// each of them; 0 means any.
	AnswerBytes int64
	// LogKeep replaces the constant of that name in tests; 0 means the constant.
	LogKeep uint64
	// LogStep replaces the size of the steps in which the log is measured, in tests; 0 means 16 MiB.
	LogStep int
	// Retention is how long a revision stays readable after it was superseded, at the least; older ones are
	// compacted from time to time. 0 keeps all until somebody compacts them.
	Retention time.Duration
	// Space says from when on clients get no more of it. The zero value sets no limits.
	Space SpaceLimits
}

// Replica is one member as a state machine. It is not safe for concurrent use: one goroutine at a time owns it.
type Replica struct {
	cfg      Config
	identity Header // without revision and term
	db       *pebble.DB
	log      *raftlog.Log
	raft     *raft.RawNode
	store    *keyspace.Store
	lessor   *lessor.Lessor
	instants *record.Instants

	now     clock.Instant // of the newest Step
	ticked  clock.Instant // ≤ now
	wake    clock.Instant // when Step is to be called next, as the last WakeAt said
	effects []Effect      // of the Step under way
	answers []Effect      // memory for those of Answer
	halted  bool
	full    bool // the Step under way has written or applied entries: it applies no more

	applied raftlog.Mark
	terms   raftlog.Terms // that were applied
	settled uint64        // what is committed up to here has been handed to the disk
	membership
	confirming confirming
	health     health
	yielding   yieldState
	forwarded  forwarded
	replacing

	term           uint64 // raft's current term
	leading        bool   // raft says that this member leads
	serving        bool   // ⇒ leading, and the first entry of this term is applied here
	leadershipTerm uint64 // the term of the newest leadership begun here
	holdUntil      clock.Instant

	persistSequence uint64
	persisting      []persisting // handed out and not yet reported, in order

	intake    *intake.Queue
	sequence  uint64 // of the newest proposal
	proposals map[uint64][]intake.Pending
	parked    []parked // what came before the member served; len ≤ intake.MaxQueue
	lagging   []parked // what came while entries were committed and not applied, by index; len ≤ intake.MaxQueue
	// waiting holds the renewals that wait for a decision about their lease.
	waiting  map[lessor.ID][]waiter
	waiters  int // the sum of the lengths in waiting; ≤ maxWaiters
	sweeping bool
	unswept  int // Steps since the last sweep; ≤ sweepPatience
	history  history
	trims    []waitingTrim // by revision
	applying *applying     // nil, or batch
	batch    applying
	deferred []*raftpb.Message // to be applied by the next Step
	space    spaceGauge
	// memoryShort is set while what stays in memory is refused.
	memoryShort bool
	names       *ownership.Registry
	committed   stored         // of names
	buffer      *record.Buffer // records that are not at their keys yet
	scratch     scratch
	wall        int64 // the time of day at the instant walled
	walled      clock.Instant

	counts Counts
	late   histogram.Durations // how late leases ended
}

// Counts are totals since the replica was opened.
type Counts struct {
	Granted, Renewed, Revoked, Expired, Applied, Skipped uint64
	// Campaigns are those of this member. RejectedPeers are messages of those who are no members, or whose data folder
	// is not the one that the member had. Malformed are messages that raft would have misunderstood.
	Campaigns, RejectedPeers, Malformed uint64
	// Yields are the hand-overs that this member decided because another one was better off.
	Yields uint64
}

// Open reads what the database holds, or founds a group of one member if it is empty. Nothing is served
// until Step has led the member through its election.
func Open(cfg Config) (*Replica, error) {
	if cfg.LogKeep == 0 {
		cfg.LogKeep = LogKeep
	}
	if cfg.LogStep == 0 {
		cfg.LogStep = raftlog.DefaultStep
	}
	cfg.ElectionTimeout = cmp.Or(cfg.ElectionTimeout, DefaultElectionTimeout)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, DefaultReadTimeout)
	cfg.MasterLease = cmp.Or(cfg.MasterLease, masterlease.DefaultDuration)
	cfg.Drift = cmp.Or(cfg.Drift, clock.DefaultDrift)
	r := &Replica{
		cfg: cfg, db: cfg.DB, now: cfg.Now, holdUntil: cfg.Now, forwarded: newForwarded(),
		proposals: make(map[uint64][]intake.Pending), waiting: make(map[lessor.ID][]waiter),
		space: spaceGauge{limits: cfg.Space, seen: Space{Free: UnknownFree}}, names: ownership.New(),
		intake: intake.New(), buffer: record.NewBuffer(), scratch: newScratch(),
	}
	r.committed.r, r.batch.stored.r = r, r
	if err := r.recover(); err != nil {
		return nil, err
	}
	if err := r.join(); err != nil {
		return nil, err
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: r.identity.MemberID, ElectionTick: max(minElectionTicks, int(cfg.ElectionTimeout/TickInterval)), HeartbeatTick: 1,
		Storage: r.log, Applied: r.applied.Index, AsyncStorageWrites: true,
		MaxSizePerMsg: maxSendBytes, MaxCommittedSizePerReady: maxApplyBytes, MaxInflightMsgs: maxInflight, MaxInflightBytes: maxInflightBytes,
		CheckQuorum: true, PreVote: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: raftLogger{},
	})
	if err != nil {
		return nil, fmt.Errorf("raft refuses its configuration: %w", err)
	}
	r.raft = node
	return r, nil
}

// Step takes events that happened, in order, at or before now, and returns what must be done, in order.
// now is read after the last of the events left its queue. Nothing but it, and Answer for what needs no more
// than memory, changes a Replica.
//
// A Replica that returned [Halt] ignores whatever comes later.
func (r *Replica) Step(now clock.Instant, events ...Event) []Effect {
	if r.halted {
		return nil
	}
	r.effects, r.full = nil, false
	r.batch.recycle()
	r.noticePause(now)
	r.now = now
	r.intake.MeasureExpiries(now)
	r.tickRaft()
	r.applyNext()
	for _, event := range events {
		r.handle(event)
	}
	r.askStandings()
	r.unpark()
	r.elect()
	r.decide()
	r.retireHistory()
	r.propose()
	r.probe()
	r.considerYield()
	r.forwardAll()
	r.confirm()
	r.advance()
	r.discardUnheeded()
	r.settleHandOver()
	r.timeOutParked()
	r.sweep()
	r.trim()
	r.answerOthers()
	r.schedule()
	return r.effects
}

// noticePause finds out that nobody called Step for a while. The machine or the process stood still, and
// renewals may be waiting behind the events that came first: hold back with ending leases for one tick.
func (r *Replica) noticePause(now clock.Instant) {
	if r.now.Until(now) > pauseTicks*TickInterval+TickInterval/2 {
		r.holdUntil = now.Add(TickInterval)
	}
}

// tickRaft drives raft's heartbeats, once every TickInterval however often Step is called.
func (r *Replica) tickRaft() {
	if r.leading && r.now.Elapsed(r.ticked) >= TickInterval {
		r.ticked = r.now
		r.watchProgress()
		r.raft.Tick()
		r.observe()
	}
}

func (r *Replica) handle(event Event) {
	switch e := event.(type) {
	case Tick: // looking at the time is what every Step does
		if e.Wall != 0 {
			r.wall, r.walled = e.Wall, r.now
		}
	case Request:
		r.onRequest(e)
	case Requests:
		for i, command := range e.Commands {
			r.onRequest(Request{e.First + uint64(i), command})
		}
	case Memory:
		r.memoryShort = e.Short
	case Space:
		r.onSpace(e)
	case Renewal, Read, Inspection:
		r.question(event)
	case Persisted:
		r.onPersisted(e)
	case Received:
		r.onReceived(e)
	case Unreachable:
		r.onUnreachable(e.Member)
	case Shipped:
		r.onShipped(e)
	case Installed:
		r.onInstalled(e)
	case HandOver:
		r.onHandOver(e)
	case Leave:
		r.onLeave(e)
	case Found:
		r.onFound(e)
	default:
		panic(fmt.Sprintf("replica: unknown event %T", event))
	}
}

// decide lets the lessor say which leases are over, quiet, or heard again. While many ends still
// wait to be proposed it is not asked: clients' commands wait for those of a few hundred leases, however many end. Nor
// is it while clients write and many have just ended.
func (r *Replica) decide() {
	if !r.serving || r.halted || !r.now.After(r.holdUntil) {
		return
	}
	for r.intake.MayExpire(r.now) {
		due := r.lessor.Due(r.now, lessor.At(r.applied.Index, maxOrdinal))
		if len(due) > 0 {
			r.intake.AddExpiry(r.now, entry.Expire(due))
		}
		if len(due) < intake.MaxExpiries {
			return
		}
	}
}

// checkpoint is the lessor's Checkpointer.
func (r *Replica) checkpoint(quiet []lessor.Checkpoint, cleared []lessor.Cleared) {
	r.intake.AddOwn(entry.Checkpoint{Quiet: quiet, Cleared: cleared})
}

// advance moves raft on until it has nothing more to do without the disk.
func (r *Replica) advance() {
	for !r.halted && r.raft.HasReady() {
		ready := r.raft.Ready()
		for _, state := range ready.ReadStates {
			r.confirmed(state)
		}
		for _, m := range ready.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				r.writeForRaft(m)
			case raft.LocalApplyThread:
				r.applyOrDefer(m)
			default:
				r.sendRaft(m)
			}
		}
	}
	if !r.halted {
		r.settled = r.raft.BasicStatus().HardState.GetCommit()
	}
}

// sweep removes some keys of ended leases, which have been invisible since their lease ended.
func (r *Replica) sweep() {
	if !r.sweeping || r.halted || r.installing {
		return
	}
	if r.unswept++; r.full && r.unswept < sweepPatience {
		return
	}
	r.unswept = 0
	batch := r.db.NewBatch() // nothing is read
	writer := r.store.Begin(batch)
	more, err := writer.Sweep(sweepKeys)
	if err == nil {
		err = batch.Commit(pebble.NoSync)
	}
	if err != nil {
		r.haltWith(fmt.Errorf("the disk failed while keys of ended leases were removed: %w", err))
		return
	}
	r.store.Commit(writer)
	r.reuse(batch)
	r.sweeping = more
}

// reuse gives the memory of a batch that is needed no more back to the database.
func (r *Replica) reuse(batch *pebble.Batch) {
	if err := batch.Close(); err != nil {
		panic(fmt.Sprintf("replica: a batch cannot be closed: %v", err))
	}
}

// schedule asks for the next tick when there will be something to do.
func (r *Replica) schedule() {
	if r.halted {
		return
	}
	wait := TickInterval
	if due, ok := r.untilDue(); ok {
		wait = min(wait, due)
	}
	wait = min(wait, r.untilVote())
	if r.serving && !r.alone() {
		wait = min(wait, r.untilWriteIsSlow())
	}
	if (r.sweeping || r.store.Trimmable() || len(r.deferred) > 0) && !r.installing || r.intake.MeasuresExpiries() {
		wait = 0
	}
	r.wakeIn(max(0, wait))
}

func (r *Replica) emit(e Effect) { r.effects = append(r.effects, e) }

// haltWith ends this member, and has the others know of it if it led.
func (r *Replica) haltWith(err error) {
	r.halted = true
	r.resign()
	r.emit(Halt{err})
}

// Abandon is for a driver that cannot go on, and returns what it should still send: the others need not find out by
// themselves that this member is gone. Afterwards the Replica ignores whatever comes.
func (r *Replica) Abandon(now clock.Instant) []Effect {
	if r.halted {
		return nil
	}
	r.now, r.effects, r.halted = now, nil, true
	r.resign()
	return r.effects
}

// Header returns what an answer given now carries.
func (r *Replica) Header() Header {
	h := r.identity
	h.Revision, h.Term = r.store.Revision(), r.term
	return h
}

// Counts returns the totals since Open.
func (r *Replica) Counts() Counts { return r.counts }

// Late returns how late leases ended since Open: the time from the deadline to when the end was applied.
func (r *Replica) Late() histogram.Durations { return r.late }

// Waiting returns how many requests wait: to be proposed, to be applied, for the member to serve, and, of
// renewals, for a decision about their lease.
func (r *Replica) Waiting() int {
	n := r.intake.Len() + len(r.parked) + len(r.lagging) + r.waiters
	for _, commands := range r.proposals { // order: they are only counted
		n += len(commands)
	}
	return n
}

// Serving reports whether requests are answered.
func (r *Replica) Serving() bool { return r.serving && !r.halted }

// Applied returns the index of the last entry that the state holds, and Last that of the last stable one.
func (r *Replica) Applied() uint64 { return r.applied.Index }
func (r *Replica) Last() uint64    { return r.log.Last() }

// Lessor returns the lessor, for looking at it between two steps.
func (r *Replica) Lessor() *lessor.Lessor { return r.lessor }

// Store returns the keyspace, which any goroutine may read.
func (r *Replica) Store() *keyspace.Store { return r.store }

// raftLogger keeps raft silent: what is worth telling is told by events. Its panics stay panics.
type raftLogger struct{}

func (raftLogger) Debug(...any)            {}
func (raftLogger) Debugf(string, ...any)   {}
func (raftLogger) Info(...any)             {}
func (raftLogger) Infof(string, ...any)    {}
func (raftLogger) Warning(...any)          {}
func (raftLogger) Warningf(string, ...any) {}
func (raftLogger) Error(...any)            {}
func (raftLogger) Errorf(string, ...any)   {}
func (raftLogger) Fatal(v ...any)          { panic("raft: " + fmt.Sprint(v...)) }
func (raftLogger) Fatalf(f string, v ...any) {
	panic("raft: " + fmt.Sprintf(f, v...))
}
func (raftLogger) Panic(v ...any)            { panic("raft: " + fmt.Sprint(v...)) }
func (raftLogger) Panicf(f string, v ...any) { panic("raft: " + fmt.Sprintf(f, v...)) }
