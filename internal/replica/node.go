package replica

import (
	"context"
	"log/slog"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// NodeConfig says where a [Node] keeps its data and how it runs. The zero value of every field but Dir is
// usable.
type NodeConfig struct {
	// Dir is the data folder. It is made if it is not there.
	Dir string
	// Logger receives state transitions; nil logs nothing.
	Logger *slog.Logger
	// MaxRequestBytes bounds one request's keys and values; 0 means [DefaultMaxRequestBytes].
	MaxRequestBytes int
}

// DefaultMaxRequestBytes is the size of the largest request, as in etcd.
const DefaultMaxRequestBytes = 3 << 19

// Status is what a [Node] tells of itself.
type Status struct {
	Header       Header
	Leader       uint64
	LogIndex     uint64
	AppliedIndex uint64
	DiskBytes    int64 // what the data folder's files take
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
type Node struct{}

// Start opens the data folder and runs the member until Stop, or until its disk fails.
func Start(ctx context.Context, cfg NodeConfig) (*Node, error) { panic("draft") }

// Stop ends the member, waits for it, and closes the data folder.
func (n *Node) Stop(ctx context.Context) error { panic("draft") }

// Done is closed when the member has ended, by Stop or by itself; then Err says why (nil after Stop).
func (n *Node) Done() <-chan struct{} { panic("draft") }
func (n *Node) Err() error            { panic("draft") }

// Ready is closed once the member serves for the first time.
func (n *Node) Ready() <-chan struct{} { panic("draft") }

// Serving returns nil if the member would serve a request now, else why not.
func (n *Node) Serving() error { panic("draft") }

// Header returns what an answer given now would carry.
func (n *Node) Header() Header { panic("draft") }

// Status returns a snapshot, without asking anybody.
func (n *Node) Status() Status { panic("draft") }

func (n *Node) Put(ctx context.Context, req keyspace.PutRequest) (Header, keyspace.PutResult, error) {
	panic("draft")
}

func (n *Node) DeleteRange(ctx context.Context, req keyspace.DeleteRequest) (Header, keyspace.DeleteResult, error) {
	panic("draft")
}

// Range reads. A serializable read does not ask whether this member may still answer authoritatively.
func (n *Node) Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (Header, keyspace.RangeResult, error) {
	panic("draft")
}

// Grant grants a lease under an id that the caller chose; id 0 asks for a free one.
func (n *Node) Grant(ctx context.Context, id lessor.ID, ttl time.Duration) (Header, Granted, error) {
	panic("draft")
}

func (n *Node) Revoke(ctx context.Context, id lessor.ID) (Header, error) { panic("draft") }

// Renew asks to renew leases and returns at once. answer is called one or more times from the member's own
// goroutine and must not block; together the calls name every id once, unless the node stops before.
func (n *Node) Renew(ids []lessor.ID, answer func(Header, []RenewedLease)) error { panic("draft") }

func (n *Node) TimeToLive(ctx context.Context, id lessor.ID, items bool) (Header, LeaseStatus, error) {
	panic("draft")
}

func (n *Node) Leases(ctx context.Context) (Header, []lessor.Lease, error) { panic("draft") }

// NewWatchStream returns a stream of watchers on the keyspace.
func (n *Node) NewWatchStream(limits keyspace.StreamLimits) *keyspace.Stream { panic("draft") }

var _ = clock.Now
