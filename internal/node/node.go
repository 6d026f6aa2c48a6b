package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/histogram"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// Config says where a [Node] keeps its data and how it runs. The zero value of every field except Dir is usable.
type Config struct {
	// Dir is the data directory. Start creates it if it does not exist.
	Dir string
	// Program identifies the program that runs the member of a cluster, such as by its version and its file. Start waits for
	// the length of one promise if another program ran it before. Empty means that Start does not compare.
	Program string
	// Logger receives state transitions; nil logs nothing.
	Logger *slog.Logger
	// MaxRequestBytes bounds the size of one request's keys and values; 0 means [replica.DefaultMaxRequestBytes].
	MaxRequestBytes int
	// MaxLeases bounds the number of live leases: the member refuses a grant beyond it and keeps the existing leases.
	// 0 means no limit.
	MaxLeases int
	// FS replaces the file system in tests; nil means the machine's own.
	FS vfs.FS
	// AnswerBytes bounds the memory of answers to requests that write; see [replica.Config]. 0 means
	// [DefaultAnswerBytes].
	AnswerBytes int64
	// MaxOpenFiles bounds the files that the database keeps open for later use; 0 means [DefaultMaxOpenFiles].
	MaxOpenFiles int
	// Retention is the minimum time for which old revisions of keys stay readable; see [replica.Config]. 0 keeps them
	// forever.
	Retention time.Duration
	// Space holds the limits at which the member refuses puts and grants. The zero value sets no limits.
	Space replica.SpaceLimits
	// Cluster makes this member one of a cluster; nil means that it runs alone, without an address for other members.
	Cluster *ClusterConfig
	// LoggedIn receives the tokens that users got from any member, in the order of the log and before the member that was
	// asked answers. The member's goroutine calls it, so it must not block. It does not learn of tokens from before a state
	// that another member sent, and may learn of a token again after a start. Nil means that nobody listens.
	LoggedIn func([]access.Login)
	// Audit begins the audit log as soon as all members know it, although the cluster can then no longer return to an earlier
	// program. Without it, the log begins when the first user or role is added.
	Audit bool
	// FreeBytes returns the free bytes of a directory's file system; nil asks FS.
	FreeBytes func(dir string) (uint64, error)

	logKeep uint64 // replica.Config.LogKeep; only tests set it
}

// DefaultMaxOpenFiles is the number of files that the database keeps open by default. MinOpenFiles is the smallest
// accepted number.
const (
	DefaultMaxOpenFiles = 1000
	MinOpenFiles        = 74
)

// intakeSize bounds the calls that are queued for the member's goroutine. Further callers block until there is room.
const intakeSize = 4096

// bulkIntakeSize is the same bound for bulk commands.
const bulkIntakeSize = 64

// Status is a snapshot of a [Node]'s state and counters.
type Status struct {
	Header       replica.Header
	Versions     gate.State
	Leader       uint64
	LogIndex     uint64
	AppliedIndex uint64
	DiskBytes    int64 // size of the data directory's files
	DataBytes    int64 // size of live data, which the quota limits
	FreeBytes    int64 // free bytes of the file system; -1 if unknown
	QuotaBytes   int64 // 0: no quota
	Shortage     replica.Shortage
	Queue        int // requests that wait for an answer or for the member's goroutine
	Attached     int // keys attached to leases
	Watch        keyspace.WatchLag
	Timings      Timings
	Leases       int
	Overdue      int           // leases past their deadline whose expiry is not applied yet
	OldestDue    time.Duration // how long the oldest of them has been overdue
	Granted      uint64        // since the process started, as are the counters below
	Renewed      uint64
	Revoked      uint64
	Expired      uint64
	Applied      uint64 // commands
	Syncs        uint64
	SyncTime     time.Duration
}

// Node runs one member: it drives a [replica.Replica] with this machine's clocks, disk and goroutines. Its methods
// are safe for concurrent use.
type Node struct {
	cfg     Config
	log     *slog.Logger
	db      *pebble.DB
	lock    *pebble.Lock
	reserve *datadir.Reserve
	// spares holds file descriptors in reserve for moments in which the process has no other left.
	spares  *descriptorReserve
	store   *keyspace.Store
	access  *access.Published
	hub     *keyspace.Hub
	nameHub nameHub

	// owner guards the replica and the fields down to handOvers. Its holder is one of three: the goroutine of run,
	// the disk's goroutine in settle, or a caller in answerFromMemory.
	owner          sync.Mutex
	ended          bool   // the goroutine of run has returned
	broken         error  // if not nil, no goroutine may call the replica any longer, and the member ends
	rejected       uint64 // number of rejected messages at the last log line about them
	rejectedAt     clock.Instant
	heldOff        bool          // a hold-off after a restore lasted at the last look
	foundingLogged clock.Instant // when a new member last logged why it waits
	replica        *replica.Replica
	stepTime       clock.Instant     // the time given to the last Step
	wake           clock.Instant     // when run calls Step next, from the last WakeAt
	calls          map[uint64]caller // by request ID
	answeredHolds  []*holdCall       // calls of Hold that have answers to deliver after this Step
	wallSent       clock.Instant     // when a Tick last carried the time of day
	fault          masterlease.Fault // the last clock fault that was logged
	handOvers      uint64            // number of voluntary hand-overs at the last log line about them

	wakeup    chan struct{} // makes the goroutine of run call Step earlier; capacity one
	intake    chan submission
	bulk      chan submission // bulk commands; the goroutine of run takes a few at a time
	persists  chan syncing
	persisted chan replica.Persisted
	nextID    atomic.Uint64

	identity    replica.Header
	incarnation uint64
	inUse       atomic.Uint32         // the gate.Version that the data directory is marked with
	leader      atomic.Pointer[known] // names this member only while it serves
	serving     atomic.Bool           // a leader is known
	readyUntil  atomic.Pointer[clock.Instant]
	awaits      atomic.Pointer[string] // what a new member waits for; nil once it belongs to its cluster
	members     atomic.Pointer[[]roster.Member]
	listed      atomic.Bool // the cluster has a list of members
	connected   atomic.Bool // the transport has that list
	ready       chan struct{}
	applied     appliedIndex

	received      chan replica.Event // from other members
	leaderMu      sync.Mutex         // guards leaderChanged
	leaderChanged chan struct{}      // closed at the next change
	malformed     atomic.Uint64
	overrun       atomic.Uint64
	states        states

	syncs    sharedHistogram
	applies  histogram.Durations // guarded by owner, as is renewals
	renewals histogram.Durations

	shortage    atomic.Int32 // the current replica.Shortage
	spaceUnread atomic.Bool  // the last reading of the free space failed
	ordered     atomic.Bool  // an operator raised the alarm
	exporting   atomic.Bool  // a snapshot in etcd's format exists

	exportsHalted bool // the disk failed under an export, which goes on to use memory; guarded by exporting

	// using is read-locked by the goroutines of callers while they use the database. closing ends when those that use it
	// for long must stop.
	using      sync.RWMutex
	closed     bool // guarded by using
	closing    context.Context
	endClosing context.CancelFunc

	stopOnce sync.Once
	stopping chan struct{}
	endOnce  sync.Once
	removal  sync.Once     // of closing removed
	removed  chan struct{} // closed when the member knows that it was removed; see noteRemoval
	idleOnce sync.Once
	idle     chan struct{} // closed when the member's goroutine handles no more events, at the latest before done
	done     chan struct{} // closed when the member has ended
	err      error         // why the member ended; set before done is closed
	last     Status        // set before done is closed

	disk diskWatch
}

// Start opens the data directory and runs the member until Stop, or until its disk fails. Its errors say how to fix
// the cause.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxRequestBytes == 0 {
		cfg.MaxRequestBytes = replica.DefaultMaxRequestBytes
	}
	if cfg.AnswerBytes == 0 {
		cfg.AnswerBytes = DefaultAnswerBytes
	}
	if cfg.MaxOpenFiles == 0 {
		cfg.MaxOpenFiles = DefaultMaxOpenFiles
	}
	if cfg.FS == nil {
		cfg.FS = vfs.Default
	}
	if cfg.FreeBytes == nil {
		cfg.FreeBytes = freeBytes(cfg.FS)
	}
	stopping := make(chan struct{})
	files := newSpareFS(cfg.FS, stopping)
	cfg.FS = files
	n := &Node{
		cfg: cfg, log: cfg.Logger, spares: files.reserve, reserve: datadir.NewReserve(cfg.FS, cfg.Dir, cfg.Space.MinFree/2, cfg.FreeBytes),
		intake: make(chan submission, intakeSize), bulk: make(chan submission, bulkIntakeSize), calls: make(map[uint64]caller),
		persists: make(chan syncing, persistsInFlight), persisted: make(chan replica.Persisted, persistsInFlight),
		received: make(chan replica.Event, maxReceived), leaderChanged: make(chan struct{}), states: newStates(), applied: newAppliedIndex(),
		wakeup: make(chan struct{}, 1), ready: make(chan struct{}), stopping: stopping, removed: make(chan struct{}), idle: make(chan struct{}), done: make(chan struct{}),
	}
	n.leader.Store(new(known))
	n.readyUntil.Store(new(clock.Instant))
	n.closing, n.endClosing = context.WithCancel(context.Background())
	if err := n.openInTime(ctx); err != nil {
		n.endClosing()
		close(stopping) // ends all waits for a descriptor
		n.spares.close()
		return nil, err
	}
	n.intake <- submission{event: n.readSpace()}
	go n.watchDisk()
	go n.run()
	return n, nil
}

// open opens the data directory, the database and the replica. If one of them fails, it closes what it opened.
func (n *Node) open(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.db, n.lock, err = datadir.Open(n.cfg.FS, n.cfg.Dir, datadir.Options{
		OpenFiles: n.cfg.MaxOpenFiles, Halt: n.halt,
		Wrap: func(files vfs.FS) vfs.FS { return watchedFS{files, &n.disk} },
	}); err != nil {
		return err
	}
	domain := clock.SystemDomain()
	if domain == clock.UnknownDomain {
		n.log.Warn("this system does not distinguish one boot from another; after a restart leases last longer than they need to")
	}
	config := replica.Config{
		DB: n.db, Domain: domain, Now: clock.Now(),
		MaxLeases: n.cfg.MaxLeases, MaxRequestBytes: n.cfg.MaxRequestBytes, AnswerBytes: n.cfg.AnswerBytes,
		ClusterID: randomID(), MemberID: randomID(), Incarnation: randomID(), Space: n.cfg.Space, Retention: n.cfg.Retention,
		Uses: n.cfg.uses(), LogKeep: n.cfg.logKeep,
	}
	contacts, err := n.identify(ctx, &config)
	if err != nil {
		return err
	}
	if err := n.openReplica(ctx, config); err != nil {
		return err
	}
	if err := n.openMembers(contacts); err != nil {
		return err
	}
	n.store, n.access = n.replica.Store(), n.replica.Access()
	n.hub = keyspace.NewHub(n.store)
	n.hub.HoldDatabase(n.holdDatabase, n.releaseDatabase)
	n.identity, n.incarnation = n.replica.Identity(), n.replica.Incarnation()
	n.applied.advance(n.replica.Applied())
	return n.markVersion() // a crash may have prevented it
}

// Stop ends the member, waits for it, and closes the data directory. A leader hands over leadership first. Pending
// requests get [replica.ErrUnknownOutcome]. Stop returns early, with the context's error, if ctx ends first.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		n.leave(ctx)
		close(n.stopping)
	})
	select {
	case <-n.done:
		return n.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done is closed when the member has ended, by Stop or by itself.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the member ended, once Done is closed; nil after Stop. After a disk error the process must end,
// because the database may still run in the background.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// Ready is closed once the member knows a leader for the first time: itself, or another to which it forwards requests.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Header returns the header of an answer given now.
func (n *Node) Header() replica.Header {
	h := n.identity
	h.Revision, h.Term = n.store.Revision(), n.leader.Load().term
	return h
}

// look runs a function on the member's goroutine, with the replica, after the events of the same turn. It returns the
// function's result.
func look[T any](ctx context.Context, n *Node, at func(*replica.Replica, clock.Instant) T) (seen T, err error) {
	result := make(chan T, 1)
	select {
	case n.intake <- submission{look: func(r *replica.Replica, now clock.Instant) { result <- at(r, now) }}:
	case <-ctx.Done():
		return seen, context.Cause(ctx)
	case <-n.done:
		return seen, ErrStopped
	}
	select {
	case seen = <-result:
		return seen, nil
	case <-ctx.Done():
		return seen, context.Cause(ctx)
	case <-n.done:
		return seen, ErrStopped
	}
}

func (n *Node) readStatus(r *replica.Replica, now clock.Instant) Status {
	counts, disk, syncs := r.Counts(), n.db.Metrics(), n.syncs.snapshot()
	space, limits := r.Space()
	s := Status{
		Header: r.Header(), Versions: r.Versions(), LogIndex: r.Last(), AppliedIndex: r.Applied(), Leases: r.Lessor().Len(),
		DiskBytes: int64(disk.DiskSpaceUsage()), DataBytes: int64(liveBytes(disk)),
		FreeBytes: -1, QuotaBytes: int64(limits.Quota), Shortage: r.Shortage(),
		Queue: r.Waiting() + len(n.intake) + len(n.bulk), Attached: r.Lessor().Attached(), Watch: n.hub.Lag(),
		Timings: Timings{Late: r.Late(), Renewal: n.renewals, Sync: syncs, Apply: n.applies},
		Granted: counts.Granted, Renewed: counts.Renewed, Revoked: counts.Revoked, Expired: counts.Expired,
		Applied: counts.Applied, Syncs: syncs.Count(), SyncTime: syncs.Sum(),
	}
	if free := space.Free; free <= math.MaxInt64 {
		s.FreeBytes = int64(free)
	}
	s.Leader = n.leader.Load().id
	if r.Serving() {
		s.Overdue, s.OldestDue = r.Lessor().Overdue(now)
	}
	return s
}

// Put writes a key. An error other than [replica.ErrUnknownOutcome] means that nothing changed. This holds for all
// methods that change something.
func (n *Node) Put(ctx context.Context, req keyspace.PutRequest) (replica.Header, keyspace.PutResult, error) {
	if len(req.Key)+len(req.Value) > n.cfg.MaxRequestBytes {
		return replica.Header{}, keyspace.PutResult{}, replica.ErrTooLarge
	}
	return change[keyspace.PutResult](ctx, n, req)
}

// DeleteRange deletes a key or an interval of keys.
func (n *Node) DeleteRange(ctx context.Context, req keyspace.DeleteRequest) (replica.Header, keyspace.DeleteResult, error) {
	if len(req.Key)+len(req.End) > n.cfg.MaxRequestBytes {
		return replica.Header{}, keyspace.DeleteResult{}, replica.ErrTooLarge
	}
	header, result, err := change[keyspace.DeleteResult](ctx, n, req)
	if err == nil && result.Dropped {
		err = replica.ErrAnswerDropped
	}
	return header, result, err
}

// Range reads keys on the caller's goroutine. A serializable read skips the check that this member may still answer
// authoritatively.
func (n *Node) Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (replica.Header, keyspace.RangeResult, error) {
	header, err := n.readHeader(ctx, serializable)
	if err != nil {
		return replica.Header{}, keyspace.RangeResult{}, err
	}
	result, err := readKeys(ctx, n, func() (keyspace.RangeResult, error) { return n.store.Range(ctx, req) })
	if err != nil {
		return replica.Header{}, keyspace.RangeResult{}, err
	}
	// The result is at least as new as the permitted revision, and the header may not be older than the result.
	header.Revision = max(header.Revision, result.Revision)
	return header, result, nil
}

// Grant grants a lease under an ID that the caller chose; ID 0 asks for a free one.
func (n *Node) Grant(ctx context.Context, id lessor.ID, ttl time.Duration) (replica.Header, replica.Granted, error) {
	if id != lessor.NoLease {
		return change[replica.Granted](ctx, n, entry.Grant{Lease: id, TTL: ttl})
	}
	for {
		// A random ID is practically always free. If it is not, the loop draws another.
		header, granted, err := change[replica.Granted](ctx, n, entry.Grant{Lease: lessor.ID(randomID() >> 1), TTL: ttl})
		if !errors.Is(err, lessor.ErrExists) {
			return header, granted, err
		}
	}
}

// Revoke ends a lease and deletes the keys attached to it.
func (n *Node) Revoke(ctx context.Context, id lessor.ID) (replica.Header, error) {
	header, _, err := change[replica.Result](ctx, n, entry.Revoke{Lease: id})
	return header, err
}

// Renew submits a renewal of leases and returns as soon as the member has queued it. Calls of answer together name
// every ID once, unless the node stops first. They may come before Renew returns or later, from this goroutine or
// another, and must not block.
func (n *Node) Renew(ctx context.Context, ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error {
	if len(ids) == 0 {
		return nil
	}
	select { // a stopped member queues nothing, as in ask
	case <-n.idle:
		return ErrStopped
	default:
	}
	id := n.nextID.Add(1)
	left, start := len(ids), time.Now()
	deliver := func(e replica.Effect) {
		renewed := e.(replica.Renewed)
		n.renewals.Observe(time.Since(start), uint64(len(renewed.Leases)))
		if left -= len(renewed.Leases); left == 0 {
			delete(n.calls, id)
		}
		answer(renewed.Header, renewed.Leases)
	}
	renewal := submission{event: replica.Renewal{ID: id, Leases: ids, User: callerOf(ctx).User}, id: id, caller: callerFunc(deliver)}
	if n.answerFromMemory(&renewal) {
		return nil
	}
	return n.enqueue(ctx, n.intake, renewal)
}

// TimeToLive returns the remaining time of a lease and, if items is set, the keys attached to it.
func (n *Node) TimeToLive(ctx context.Context, id lessor.ID, items bool) (replica.Header, replica.LeaseStatus, error) {
	return inspect[replica.LeaseStatus](ctx, n, replica.TimeToLive{Lease: id, Items: items})
}

// Leases lists all leases in the order of their deadlines.
func (n *Node) Leases(ctx context.Context) (replica.Header, []lessor.End, error) {
	header, leases, err := inspect[replica.Ends](ctx, n, replica.ListLeases{})
	slices.SortFunc(leases, lessor.End.Compare) // on this goroutine: sorting a million takes a second
	return header, leases, err
}

// NewWatchStream returns a stream of watchers on the keyspace. The caller closes it.
func (n *Node) NewWatchStream(limits keyspace.StreamLimits) *keyspace.Stream {
	return n.hub.NewStream(limits)
}

// randomID returns a random number greater than one.
func randomID() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails; the runtime ends the process if the system has no randomness
		if id := binary.BigEndian.Uint64(b[:]); id > 1 {
			return id
		}
	}
}
