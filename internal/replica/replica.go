package replica

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/histogram"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/event"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/permit"
	"github.com/leasekeeper/leasekeeper/internal/replica/quota"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/internal/replica/yield"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

const (
	// TickInterval is the longest time between two [Tick] of a driver.
	TickInterval = 100 * time.Millisecond

	// pauseTicks is the number of missed ticks from which on a driver counts as paused.
	pauseTicks = 2
	// minElectionTicks is the least election timeout that raft gets, in ticks. This package drives elections itself
	// (elect.go). Raft uses the number only at a leader, to notice that it has lost the others or that a hand-over
	// fails.
	minElectionTicks = 3

	// maxProposed bounds the entries that are proposed and not yet applied. Further commands wait in the queue.
	maxProposed = 64
	// maxInflight and maxInflightBytes bound the entries on their way to one other member.
	maxInflight, maxInflightBytes = 256, 16 << 20
	// maxApplyBytes bounds the log entries that one batch applies, so that other events get their turn: one entry of
	// bulk, or some milliseconds. maxSendBytes bounds the entries of one message.
	maxApplyBytes = 256 << 10
	maxSendBytes  = 2 << 20
	// sweepKeys bounds the keys of ended leases that one Step removes.
	sweepKeys = 128
	// sweepPatience is after how many Steps with entries to write or apply one sweeps nevertheless.
	sweepPatience = 8
	// trimKeys bounds the keys whose compacted versions one Step removes.
	trimKeys = 256

	// maxWaiters bounds the renewals that wait for a decision about their lease. After a restart the first renewal of
	// every lease waits, for as long as one write takes.
	maxWaiters = 1 << 18

	// LogKeep is the number of applied entries that truncation leaves. Truncation comes again after as many more.
	LogKeep = 10_000
)

// Config configures a Replica.
type Config struct {
	// DB is the open database. The replica reads and writes it but never closes it.
	DB *pebble.DB
	// Domain says which clocks the instants handed to Step are read on.
	Domain clock.Domain
	// Now is the instant at which the process started.
	Now clock.Instant
	// ClusterID and MemberID are used when the database is new; both must be random and not zero. In a cluster of
	// several members they are the same at every start.
	ClusterID, MemberID uint64
	// Incarnation is used when the database is new. It must be random and not zero.
	Incarnation uint64
	// Members are the ids of a cluster of several members, MemberID among them; none means that this member is alone.
	// They are the members with which the cluster was founded.
	Members []uint64
	// Joins says that a new member joins a cluster that exists, and was added to it under MemberID. Members are none then.
	Joins bool
	// Founders describe the members with which the cluster was founded, for the list that the first change of the members
	// begins. Their ids are those of Members; learners and incarnations do not count.
	Founders []roster.Member
	// ElectionTimeout is how long the members go without a leader; 0 means [DefaultElectionTimeout].
	ElectionTimeout time.Duration
	// MasterLease is for how long a leader asks the others not to elect another; 0 means the default of
	// [masterlease.HolderConfig]. If it is longer than ElectionTimeout, a failover takes longer by the difference.
	MasterLease time.Duration
	// Drift bounds the rates of the members' clocks; 0 means [clock.DefaultDrift].
	Drift clock.Drift
	// ReadTimeout bounds how long a question waits for a leader, or for its lease; 0 means [DefaultReadTimeout].
	ReadTimeout time.Duration
	// Eager is for simulations: this member campaigns and votes as soon as it may. So only the members' promises
	// delay another leader.
	Eager bool
	// MaxLeases bounds the leases that clients can have at a time; 0 means no bound.
	MaxLeases int
	// MaxRequestBytes bounds the keys and values of one request; 0 means [DefaultMaxRequestBytes].
	MaxRequestBytes int
	// AnswerBytes bounds the memory for uncollected answers to requests that write. One answer may take a sixteenth
	// of it; 0 means no bound.
	AnswerBytes int64
	// Uses is a version that the log is to use as soon as all members understand it, although the cluster can then no longer
	// return to an earlier program; 0 means none. From [gate.Access] on the audit log records acts. Without it, that
	// version is in use when the first user or role is added.
	Uses gate.Version
	// LogKeep replaces the constant of that name in tests; 0 means the constant.
	LogKeep uint64
	// LogStep replaces the size of the steps by which the log is measured, in tests; 0 means 16 MiB.
	LogStep int
	// Retention is how long, at the least, a revision stays readable after it was superseded. Older revisions are
	// compacted from time to time. 0 keeps all until a client compacts them.
	Retention time.Duration
	// Space says when clients get no more of it. The zero value sets no limits.
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
	effects []Effect      // of the present Step
	answers []Effect      // reused memory for the effects of Answer
	halted  bool
	full    bool // this Step has written or applied entries: it applies no more

	applied raftlog.Mark
	terms   raftlog.Terms // that were applied
	settled uint64        // committed entries up to this index were handed to the disk
	membership
	confirming confirming
	health     health
	yielding   yield.Judge
	gates      gate.Gates
	forwarded  forwarded
	replacing

	term           uint64        // raft's current term
	leading        bool          // raft says that this member leads
	serving        bool          // ⇒ leading, and the first entry of this term is applied here
	served         clock.Instant // when serving began
	leadershipTerm uint64        // the term of the newest leadership begun here
	holdUntil      clock.Instant
	heldOff        intake.HoldOff

	persistSequence uint64
	persisting      []persisting // handed out and not yet reported, in order

	intake    *intake.Queue
	sequence  uint64 // of the newest proposal
	proposals map[uint64][]intake.Pending
	parked    []parked // questions that came before the member served; len ≤ intake.MaxQueue
	lagging   []parked // questions that came while committed entries were not applied, by index; len ≤ intake.MaxQueue
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
	space    intake.SpaceGauge
	// memoryShort is set while commands whose effects stay in memory are refused.
	memoryShort bool
	names       *ownership.Registry
	access      *access.Published
	acts        audit.Log
	renewals    permit.Renewals
	quotas      quota.Ledger   // of the leases in lessor that have an owner
	committed   stored         // of names
	buffer      *record.Buffer // records that are not written to their keys yet
	scratch     record.Scratch
	wall        int64 // the time of day at the instant walled
	walled      clock.Instant

	counts Counts
	late   histogram.Durations // how late leases ended
}

// Counts is [event.Counts].
type Counts = event.Counts

// Open reads the database, or founds a new member if it is empty. The member serves nothing until Step has led it
// through an election.
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
		space: intake.SpaceGauge{Limits: cfg.Space, Seen: intake.SpaceReading{Free: UnknownFree}}, names: ownership.New(), access: new(access.Published),
		intake: intake.New(), buffer: record.NewBuffer(), scratch: record.NewScratch(), yielding: yield.New(cfg.ElectionTimeout, TickInterval),
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
		Logger: raftlog.Silent{},
	})
	if err != nil {
		return nil, fmt.Errorf("raft refuses its configuration: %w", err)
	}
	r.raft = node
	return r, nil
}

// Step processes events that happened, in order, at or before now, and returns what the driver must do, in order. The
// driver reads now after the last of the events left its queue. Only Step changes a Replica, besides Answer, which
// needs only memory.
//
// A Replica that returned [Halt] ignores further events.
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
	r.endHoldOff()
	r.askStandings()
	r.askRemoval()
	r.unpark()
	r.elect()
	r.decide()
	r.retireHistory()
	r.resumeChange()
	r.bindMembers()
	r.propose()
	r.probe()
	r.considerYield()
	r.forwardAll()
	r.confirm()
	r.advance()
	r.discardUnheeded()
	r.transferWhenDrained()
	r.settleHandOver()
	r.timeOutParked()
	r.sweep()
	r.trim()
	r.answerOthers()
	r.schedule()
	return r.effects
}

// noticePause notes that Step was not called for a while. Then the machine or the process stood still, and renewals
// may wait behind the events that came first. So no lease ends for one tick.
func (r *Replica) noticePause(now clock.Instant) {
	if r.now.Until(now) > pauseTicks*TickInterval+TickInterval/2 {
		r.holdUntil = now.Add(TickInterval)
	}
}

// tickRaft drives raft's heartbeats once every TickInterval, however often Step is called.
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
	case Tick: // every Step looks at the time anyway
		if e.Wall != 0 {
			r.wall, r.walled = e.Wall, r.now
		}
	case Request:
		r.onRequest("", e)
	case BulkRequest:
		r.onRequest(e.Client, e.Request)
	case Requests:
		for i, command := range e.Commands {
			r.onRequest("", Request{ID: e.First + uint64(i), Command: command, Caller: e.Caller})
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
	case ChangeMembers:
		r.onChangeMembers(e)
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

// decide asks the lessor which leases have ended, are quiet, or are renewed again. It stops while many ends wait to
// be proposed: then a client's command waits for the ends of a few hundred leases only, however many end. It also
// waits while the rate limiter holds up ends.
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

// advance moves raft on until it has nothing left to do without the disk.
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

// reuse returns the memory of a batch to the database.
func (r *Replica) reuse(batch *pebble.Batch) {
	if err := batch.Close(); err != nil {
		panic(fmt.Sprintf("replica: a batch cannot be closed: %v", err))
	}
}

// schedule asks for the next tick at the time of the next work.
func (r *Replica) schedule() {
	if r.halted {
		return
	}
	wait := TickInterval
	if due, ok := r.untilDue(); ok {
		wait = min(wait, due)
	}
	wait = min(wait, r.untilVote())
	if r.serving && !r.soleVoter() {
		wait = min(wait, r.untilWriteIsSlow())
	}
	if (r.sweeping || r.store.Trimmable() || len(r.deferred) > 0) && !r.installing || r.intake.MeasuresExpiries() {
		wait = 0
	}
	r.wakeIn(max(0, wait))
}

func (r *Replica) emit(e Effect) { r.effects = append(r.effects, e) }

// haltWith ends this member. If it led, it informs the others.
func (r *Replica) haltWith(err error) {
	r.halted = true
	r.resign()
	r.emit(Halt{Err: err})
}

// Abandon is for a driver that cannot continue. It returns the messages that the driver should still send, so that
// the others know at once that this member is gone. Afterwards the Replica ignores all events.
func (r *Replica) Abandon(now clock.Instant) []Effect {
	if r.halted {
		return nil
	}
	r.now, r.effects, r.halted = now, nil, true
	r.resign()
	return r.effects
}

// Header returns the header of an answer given now.
func (r *Replica) Header() Header {
	h := r.identity
	h.Revision, h.Term = r.store.Revision(), r.term
	return h
}

// Counts returns the totals since Open.
func (r *Replica) Counts() Counts { return r.counts }

// Late returns how late leases have ended since Open: the time from the deadline to the application of the end.
func (r *Replica) Late() histogram.Durations { return r.late }

// Waiting returns how many requests wait: to be proposed, to be applied, for the member to serve, and, of renewals,
// for a decision about their lease.
func (r *Replica) Waiting() int {
	n := r.intake.Len() + len(r.parked) + len(r.lagging) + r.waiters
	for _, commands := range r.proposals { // order: they are only counted
		n += len(commands)
	}
	return n
}

// Serving reports whether the member answers requests.
func (r *Replica) Serving() bool { return r.serving && !r.halted }

// Applied returns the index of the newest entry in the state, and Last that of the newest stable entry.
func (r *Replica) Applied() uint64 { return r.applied.Index }
func (r *Replica) Last() uint64    { return r.log.Last() }

// Lessor returns the lessor. Callers may read it between two steps.
func (r *Replica) Lessor() *lessor.Lessor { return r.lessor }

// Access returns the policy, which any goroutine may load. A change of it is there before the changes that come after it.
func (r *Replica) Access() *access.Published { return r.access }

// Store returns the keyspace, which any goroutine may read.
func (r *Replica) Store() *keyspace.Store { return r.store }
