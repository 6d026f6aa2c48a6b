package server

import (
	"context"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// DefaultMemoryLimit is [Config.MemoryLimit] if nothing is said.
const DefaultMemoryLimit = 1 << 30

// Parts of the memory limit, as its divisors: what all clients together may use, and what one connection may.
const (
	answersPart, answersEachPart     = 8, 16 // bytes of answers that are built, or wait to be sent
	requestsPart, requestsEachPart   = 8, 16 // bytes of requests under way
	unreadPart, unreadEachPart       = 8, 16 // bytes of requests that have not arrived in full
	bytesPerStream, bytesPerConn     = 128 << 10, 128 << 10
	bytesPerRequest, bytesPerWatcher = 32 << 10, 8 << 10
	// streamsShare is the part of all long streams that one connection may have open.
	streamsShare = 2
)

// uncounted is the size up to which messages are not counted one by one: their number is bounded.
const uncounted = 1 << 10

// pool is one kind of memory that clients use.
type pool struct {
	most, each int64 // bytes of all, and of one account
	used       atomic.Int64
	full, own  error // what a client is told if there is no room for all, or in its own account
}

// kind is an index of the pools.
type kind int

const (
	answerBytes kind = iota
	requestBytes
	longStreams
	kinds
)

// budget bounds the memory that clients can make the server use.
type budget struct {
	pools [kinds]pool
	// unread is of what connections have received of requests that are not complete.
	unread     atomic.Int64
	unreadMost int64
	unreadEach int64
	// open counts requests whose answers have not ended. Beyond openMost further ones are refused.
	open     atomic.Int64
	openMost int64

	evicted atomic.Int64 // connections that were closed for what they used

	// inside is the account of everybody who is not on a connection of this server's own listener.
	inside *account

	mu       sync.Mutex
	accounts map[*account]struct{}
	paces    map[admission.Identity]*resetPace // of those who have connections, or have reset too much; guarded by mu
}

// newBudget divides a memory limit.
func newBudget(limit int64) *budget {
	b := &budget{accounts: make(map[*account]struct{}), paces: make(map[admission.Identity]*resetPace), unreadMost: limit / unreadPart, unreadEach: limit / unreadEachPart,
		openMost: max(1, limit/bytesPerRequest)}
	b.inside = &account{budget: b}
	set := func(k kind, most, each int64, full, own error) {
		p := &b.pools[k]
		p.most, p.each, p.full, p.own = most, each, full, own
	}
	set(answerBytes, limit/answersPart, limit/answersEachPart, admission.ErrNoAnswers, admission.ErrAnswersWait)
	set(requestBytes, limit/requestsPart, limit/requestsEachPart, admission.ErrNoRequests, admission.ErrRequestsWait)
	streams := limit / bytesPerStream
	set(longStreams, streams, max(1, streams/streamsShare), admission.ErrNoStreams, admission.ErrNoStreams)
	return b
}

// account is what one connection uses of the budget. Its methods are safe for concurrent use.
type account struct {
	budget *budget
	conn   net.Conn // nil for those inside

	meter  *meter             // nil for those inside
	from   admission.Identity // of the address that the connection comes from
	pace   *resetPace         // of that; nil for those inside
	open   atomic.Int64       // of budget.open
	unread atomic.Int64       // of budget.unread
	// abandoned is set when the connection is being closed for what it uses.
	abandoned atomic.Bool

	over   chan struct{} // closed with the connection
	mu     sync.Mutex
	closed bool // everything was given back
	used   [kinds]int64
}

// begin makes an account for a connection.
func (b *budget) begin(conn net.Conn) *account {
	a := &account{budget: b, conn: conn, over: make(chan struct{})}
	a.meter = newMeter(a)
	if conn != nil {
		if addr := conn.RemoteAddr(); addr != nil { // nil if the client has gone
			a.from = admission.IdentityOfAddress(addr.String())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accounts[a] = struct{}{}
	a.pace = b.joinPace(a.from)
	return a
}

// close gives back what the connection uses: with it goes all that waits to be sent on it.
func (a *account) close() {
	if !a.giveAll() {
		return
	}
	close(a.over)
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	delete(a.budget.accounts, a)
	a.budget.leavePace(a.from, time.Now())
}

// giveAll gives everything back, once. From then on nothing is counted.
func (a *account) giveAll() (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.closed = true
	for k := range kinds {
		a.budget.pools[k].used.Add(-a.used[k])
		a.used[k] = 0
	}
	a.budget.unread.Add(-a.unread.Swap(0))
	return true
}

// abandon has the connection closed for what it uses.
func (a *account) abandon() {
	if a.conn != nil && !a.abandoned.Swap(true) {
		a.budget.evicted.Add(1)
		// gRPC closes it then. To close it here would need locks that the caller may hold.
		_ = a.conn.SetDeadline(time.Unix(1, 0))
	}
}

// all returns the accounts of all connections.
func (b *budget) all() []*account {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.accounts)) // order: the callers treat all alike
}

// take takes some of a pool, or says why not. If all others leave too little, the connection that uses most is closed,
// provided that it uses more than this one would, so that there is more for those who ask later.
func (a *account) take(k kind, n int64) error {
	err := a.tryTake(k, n)
	if err == a.budget.pools[k].full {
		a.budget.evict(k, a, n)
	}
	return err
}

func (a *account) tryTake(k kind, n int64) error {
	p := &a.budget.pools[k]
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.conn != nil && a.used[k]+n > p.each {
		return p.own
	}
	if p.used.Add(n) > p.most {
		p.used.Add(-n)
		return p.full
	}
	a.used[k] += n
	return nil
}

// force takes some of a pool however little is left.
func (a *account) force(k kind, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.used[k] += n
		a.budget.pools[k].used.Add(n)
	}
}

// give gives back some of what was taken.
func (a *account) give(k kind, n int64) { a.force(k, -n) }

// evict closes the connection that uses most of a pool if that is more than a would use, and a sixteenth of the pool.
func (b *budget) evict(k kind, a *account, n int64) {
	least := b.pools[k].most / 16
	a.mu.Lock()
	least = max(least, a.used[k]+n)
	a.mu.Unlock()
	var largest *account
	b.mu.Lock()
	for other := range b.accounts { // order: the largest is sought
		other.mu.Lock()
		if used := other.used[k]; used > least {
			largest, least = other, used
		}
		other.mu.Unlock()
	}
	b.mu.Unlock()
	if largest != nil {
		largest.abandon()
	}
}

// clientAddr is the address of a client, and knows the account of its connection.
type clientAddr struct {
	net.Addr
	account *account
}

// accountOf returns the account of the connection that a request came on.
func (s *Server) accountOf(ctx context.Context) *account {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(*clientAddr); ok {
			return addr.account
		}
	}
	return s.budget.inside
}

// follow sets what follows from the memory and the descriptors that there are, where it is less than what was asked for.
func (c *Config) follow() {
	least := func(field *int, most int64) { *field = int(min(int64(*field), max(most, 1), math.MaxInt32)) }
	least(&c.MaxConnections, c.MemoryLimit/bytesPerConn)
	least(&c.MaxConnectionsHTTP, c.MemoryLimit/bytesPerConn/4)
	least(&c.MaxRequests, c.MemoryLimit/bytesPerRequest)
	least(&c.MaxStreams, c.MemoryLimit/bytesPerRequest)
	least(&c.MaxWatchers, c.MemoryLimit/bytesPerWatcher)
}
