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
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/histogram"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// NodeConfig says where a [Node] keeps its data and how it runs. The zero value of every field but Dir is
// usable.
type Config struct {
	// Dir is the data folder. It is made if it is not there.
	Dir string
	// Logger receives state transitions; nil logs nothing.
	Logger *slog.Logger
	// MaxRequestBytes bounds one request's keys and values; 0 means [DefaultMaxRequestBytes].
	MaxRequestBytes int
	// MaxLeases bounds the leases that there can be at a time: a grant beyond it is refused, those there are
	// go on. 0 means any number.
	MaxLeases int
	// FS replaces the file system in tests; nil means the machine's own.
	FS vfs.FS
	// AnswerBytes bounds the memory of answers to requests that write; see [Config]. 0 means [DefaultAnswerBytes].
	AnswerBytes int64
	// MaxOpenFiles bounds the files that the database keeps open for later use; 0 means [DefaultMaxOpenFiles].
	MaxOpenFiles int
	// Retention is how long the history of keys is kept at the least; see [Config]. 0 keeps it for good.
	Retention time.Duration
	// Space says from when on clients get no more of it. The zero value sets no limits.
	Space replica.SpaceLimits
	// Cluster makes this member one of several; nil means that it is alone.
	Cluster *ClusterConfig
	// FreeBytes tells how much the file system of a folder has left; nil asks FS.
	FreeBytes func(dir string) (uint64, error)

	logKeep uint64 // of Config, in tests
}

// DefaultMaxOpenFiles is how many files the database keeps open if nothing is said, and MinOpenFiles is the least that
// it takes.
const (
	DefaultMaxOpenFiles = 1000
	MinOpenFiles        = 74
)

// intakeSize bounds the calls that wait for the member's goroutine; callers beyond it wait with their own.
const intakeSize = 4096

// bulkIntakeSize is intakeSize for bulk commands.
const bulkIntakeSize = 64

// Status is what a [Node] tells of itself.
type Status struct {
	Header       replica.Header
	Leader       uint64
	LogIndex     uint64
	AppliedIndex uint64
	DiskBytes    int64 // what the data folder's files take
	DataBytes    int64 // what of them is data, as the quota counts
	FreeBytes    int64 // what the file system has left; -1 if it does not say
	QuotaBytes   int64 // 0: none
	Shortage     replica.Shortage
	Queue        int // requests that wait for something
	Attached     int // keys attached to leases
	Watch        keyspace.WatchLag
	Timings      Timings
	Leases       int
	Overdue      int           // leases whose time is up and whose end is not yet applied
	OldestDue    time.Duration // how long the oldest of them has been overdue
	Granted      uint64        // since the process started, as are the rest
	Renewed      uint64
	Revoked      uint64
	Expired      uint64
	Applied      uint64 // commands
	Syncs        uint64
	SyncTime     time.Duration
}

// Node runs one member: it drives a [Replica] with this machine's clocks, disk and goroutines. Its methods
// are safe for concurrent use.
type Node struct {
	cfg     Config
	log     *slog.Logger
	db      *pebble.DB
	lock    *pebble.Lock
	reserve *datadir.Reserve
	// spares are descriptors for moments in which the process has no other left.
	spares *descriptorReserve
	store  *keyspace.Store
	hub    *keyspace.Hub
	names  namesHub

	// owner is held by the goroutine that calls the replica: that of run, that of the disk for a write that nothing else
	// waits behind, or one with a question, for as long as an answer from memory takes.
	owner      sync.Mutex
	over       bool   // the goroutine of run has left; guarded by owner, as is what follows
	broken     error  // nil, or why nobody may call the replica again, and the member ends
	rejected   uint64 // rejected messages when that was logged last
	rejectedAt clock.Instant
	newAt      clock.Instant // when it was told last for what this member, which is new, waits
	replica    *replica.Replica
	stepped    clock.Instant // what the newest Step was told
	wake       clock.Instant // when run calls Step next, as the last WakeAt said
	calls      map[uint64]caller
	handed     []*handed         // that have answers to tell
	walled     clock.Instant     // when it told the time of day last
	fault      masterlease.Fault // the newest that was told
	yields     uint64            // hand-overs of the replica's own when that was told last

	wakeup    chan struct{} // tells the goroutine of run that Step is to be called earlier; holds one
	intake    chan submission
	bulk      chan submission // bulk commands, which the goroutine of run takes a few of at a time
	persists  chan syncing
	persisted chan replica.Persisted
	nextID    atomic.Uint64

	identity    replica.Header
	incarnation uint64
	leader      atomic.Pointer[known] // if it is this member, it serves
	serving     atomic.Bool           // there is a leader
	readyUntil  atomic.Pointer[clock.Instant]
	awaits      atomic.Pointer[string] // for what this member waits that is new; nil once it belongs to its group
	ready       chan struct{}
	reach       reach

	received      chan replica.Event // from other members
	leaderMu      sync.Mutex         // guards leaderChanged
	leaderChanged chan struct{}      // closed at the next change
	malformed     atomic.Uint64
	overrun       atomic.Uint64
	states        states

	syncs    sharedHistogram
	applies  histogram.Durations // guarded by owner, as is renewals
	renewals histogram.Durations

	shortage    atomic.Int32 // the newest Shortage
	spaceUnread atomic.Bool  // the last reading of the free space failed
	ordered     atomic.Bool  // an operator raised the alarm

	// using is held, for reading, by those who use the database on goroutines of their own for long. closing
	// ends when they should come to an end.
	using      sync.RWMutex
	closed     bool // guarded by using
	closing    context.Context
	endClosing context.CancelFunc

	stopOnce sync.Once
	stopping chan struct{}
	endOnce  sync.Once
	done     chan struct{} // closed when the member has ended
	err      error         // why, set before done is closed
	last     Status        // set before done is closed

	disk diskWatch
}

// Start opens the data folder and runs the member until Stop, or until its disk fails. Errors say what to
// do about them.
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
		received: make(chan replica.Event, maxReceived), leaderChanged: make(chan struct{}), states: newStates(), reach: newReach(),
		wakeup: make(chan struct{}, 1), ready: make(chan struct{}), stopping: stopping, done: make(chan struct{}),
	}
	n.leader.Store(new(known))
	n.readyUntil.Store(new(clock.Instant))
	n.closing, n.endClosing = context.WithCancel(context.Background())
	if err := n.openInTime(ctx); err != nil {
		n.endClosing()
		close(stopping) // nothing waits for a descriptor any longer
		n.spares.close()
		return nil, err
	}
	n.intake <- submission{event: n.readSpace()}
	go n.watchDisk()
	go n.run()
	return n, nil
}

// open opens folder, database and replica, and closes again what it opened when one of them fails.
func (n *Node) open() (err error) {
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
		n.log.Warn("this system does not tell one boot from another; after a restart leases last longer than they need to")
	}
	config := replica.Config{
		DB: n.db, Domain: domain, Now: clock.Now(),
		MaxLeases: n.cfg.MaxLeases, MaxRequestBytes: n.cfg.MaxRequestBytes, AnswerBytes: n.cfg.AnswerBytes,
		ClusterID: randomID(), MemberID: randomID(), Incarnation: randomID(), Space: n.cfg.Space, Retention: n.cfg.Retention,
		LogKeep: n.cfg.logKeep,
	}
	if g := n.cfg.Cluster; g != nil {
		config.ClusterID, config.MemberID, config.Members = g.ClusterID, g.Self, g.Members
		config.ElectionTimeout, config.MasterLease, config.ReadTimeout = g.ElectionTimeout, g.MasterLease, g.ReadTimeout
		config.Drift = g.Drift
	}
	n.replica, err = replica.Open(config)
	if err != nil {
		return datadir.Explain(n.cfg.Dir, err)
	}
	n.store = n.replica.Store()
	n.hub = keyspace.NewHub(n.store)
	n.identity, n.incarnation = n.replica.Identity(), n.replica.Incarnation()
	n.reach.advance(n.replica.Applied())
	return nil
}

// close leaves a folder whose every byte is covered by a checksum: what a clean stop flushes from the
// write-ahead log no longer looks like something that a crash may have left unfinished.
func (n *Node) close() error {
	var err error
	if n.db != nil {
		err = errors.Join(n.db.Flush(), n.db.Close())
	}
	if n.lock != nil {
		err = errors.Join(err, n.lock.Close())
	}
	n.spares.close()
	return err
}

// Stop ends the member, waits for it, and closes the data folder. A leader hands over before. Requests under way get
// [ErrUnknownOutcome]. It returns early, with the context's error, if that ends first.
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

// Err says why the member ended, once Done is closed; nil after Stop. After an error of the disk the
// process must end: what the database still does in the background is not waited for.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// Ready is closed once the member knows a leader for the first time: itself, or another that it sends requests to.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Header returns what an answer given now would carry.
func (n *Node) Header() replica.Header {
	h := n.identity
	h.Revision, h.Term = n.store.Revision(), n.leader.Load().term
	return h
}

// look has the member's goroutine look into the replica, after the events that came with that, and returns what it
// saw.
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

func (n *Node) status(r *replica.Replica, now clock.Instant) Status {
	counts, disk, syncs := r.Counts(), n.db.Metrics(), n.syncs.snapshot()
	room, limits := r.Space()
	s := Status{
		Header: r.Header(), LogIndex: r.Last(), AppliedIndex: r.Applied(), Leases: r.Lessor().Len(),
		DiskBytes: int64(disk.DiskSpaceUsage()), DataBytes: int64(liveBytes(disk)),
		FreeBytes: -1, QuotaBytes: int64(limits.Quota), Shortage: r.Shortage(),
		Queue: r.Waiting() + len(n.intake) + len(n.bulk), Attached: r.Lessor().Attached(), Watch: n.hub.Lag(),
		Timings: Timings{Late: r.Late(), Renewal: n.renewals, Sync: syncs, Apply: n.applies},
		Granted: counts.Granted, Renewed: counts.Renewed, Revoked: counts.Revoked, Expired: counts.Expired,
		Applied: counts.Applied, Syncs: syncs.Count(), SyncTime: syncs.Sum(),
	}
	if free := room.Free; free <= math.MaxInt64 {
		s.FreeBytes = int64(free)
	}
	s.Leader = n.leader.Load().id
	if r.Serving() {
		s.Overdue, s.OldestDue = r.Lessor().Overdue(now)
	}
	return s
}

// Put writes a key. An error other than [ErrUnknownOutcome] means that nothing was changed; this holds for
// all methods that change something.
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

// Range reads keys, on the caller's goroutine. A serializable read does not ask whether this member may
// still answer authoritatively.
func (n *Node) Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (replica.Header, keyspace.RangeResult, error) {
	header, err := n.readHeader(ctx, serializable)
	if err != nil {
		return replica.Header{}, keyspace.RangeResult{}, err
	}
	give, err := keyspace.TakeTurn(ctx)
	if err != nil {
		return replica.Header{}, keyspace.RangeResult{}, err
	}
	result, err := n.store.Range(ctx, req)
	give()
	if err != nil {
		return replica.Header{}, keyspace.RangeResult{}, err
	}
	// What is read is at least as new as what was allowed, and the header may not be older than it.
	header.Revision = max(header.Revision, result.Revision)
	return header, result, nil
}

// Grant grants a lease under an id that the caller chose; id 0 asks for a free one.
func (n *Node) Grant(ctx context.Context, id lessor.ID, ttl time.Duration) (replica.Header, replica.Granted, error) {
	if id != lessor.NoLease {
		return change[replica.Granted](ctx, n, entry.Grant{Lease: id, TTL: ttl})
	}
	for {
		// A random id is free unless the impossible happens, in which case another will be.
		header, granted, err := change[replica.Granted](ctx, n, entry.Grant{Lease: lessor.ID(randomID() >> 1), TTL: ttl})
		if !errors.Is(err, lessor.ErrExists) {
			return header, granted, err
		}
	}
}

// Revoke ends a lease and deletes what is attached to it.
func (n *Node) Revoke(ctx context.Context, id lessor.ID) (replica.Header, error) {
	header, _, err := change[replica.Result](ctx, n, entry.Revoke{Lease: id})
	return header, err
}

// Renew asks to renew leases and returns as soon as the member has taken that on. answer is called one or
// more times, before Renew returns or later, from this goroutine or another, and must not block; together the
// calls name every id once, unless the node stops before.
func (n *Node) Renew(ctx context.Context, ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error {
	if len(ids) == 0 {
		return nil
	}
	select { // as in ask
	case <-n.done:
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
	renewal := submission{event: replica.Renewal{ID: id, Leases: ids}, id: id, caller: hearing(deliver)}
	if n.atOnce(&renewal) {
		return nil
	}
	select {
	case n.intake <- renewal:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.done:
		return ErrStopped
	}
}

// TimeToLive tells how long a lease has left and, if items is set, what is attached to it.
func (n *Node) TimeToLive(ctx context.Context, id lessor.ID, items bool) (replica.Header, replica.LeaseStatus, error) {
	return inspect[replica.LeaseStatus](ctx, n, replica.TimeToLive{Lease: id, Items: items})
}

// Leases lists all leases, the one that ends first before the others.
func (n *Node) Leases(ctx context.Context) (replica.Header, []lessor.End, error) {
	header, leases, err := inspect[replica.Ends](ctx, n, replica.ListLeases{})
	slices.SortFunc(leases, lessor.End.Compare) // on this goroutine: with a million it takes a second
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
