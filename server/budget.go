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

// DefaultMemoryLimit is the default of [Config.MemoryLimit], in bytes.
const DefaultMemoryLimit = 1 << 30

// Shares of the memory limit. The first number of a pair divides it into what all clients together may use, the second
// into what one connection may use.
const (
	answersPart, answersEachPart     = 8, 16 // bytes of answers that are being built or wait to be sent
	requestsPart, requestsEachPart   = 8, 16 // bytes of requests that the server is serving
	unreadPart, unreadEachPart       = 8, 16 // bytes of requests that have not arrived in full
	bytesPerStream, bytesPerConn     = 128 << 10, 128 << 10
	bytesPerRequest, bytesPerWatcher = 32 << 10, 8 << 10
	// streamsShare bounds the long streams of one connection: it may open 1/streamsShare of all.
	streamsShare = 2
)

// uncounted is the size in bytes up to which messages are not counted one by one, since their number is bounded.
const uncounted = 1 << 10

// pool is one kind of memory that clients use.
type pool struct {
	most, each int64 // bytes or streams, of all accounts and of one
	used       atomic.Int64
	full, own  error // returned if the pool is used up, or the account's part of it
	search     search
}

// poolKind is an index of budget.pools.
type poolKind int

const (
	answerBytes poolKind = iota
	requestBytes
	longStreams
	kinds
)

// budget bounds the memory that clients can make the server use. Its methods are safe for concurrent use.
type budget struct {
	pools [kinds]pool
	// unread is the number of bytes received for incomplete requests, on all connections and on one.
	unread     atomic.Int64
	unreadMost int64
	unreadEach int64
	// open is the number of requests whose answers have not ended. Above openMost, the server refuses further ones.
	open     atomic.Int64
	openMost int64

	evicted atomic.Int64 // connections that the server closed because of their use

	// internal is the account of requests that arrive by the gateway or from other members.
	internal *account

	mu            sync.Mutex
	accounts      map[*account]struct{}
	resetLimiters map[admission.Identity]*resetLimiter // of identities that have connections, or have reset too many requests; guarded by mu
}

// newBudget divides a memory limit, in bytes, among the pools.
func newBudget(limit int64) *budget {
	b := &budget{accounts: make(map[*account]struct{}), resetLimiters: make(map[admission.Identity]*resetLimiter), unreadMost: limit / unreadPart, unreadEach: limit / unreadEachPart,
		openMost: max(1, limit/bytesPerRequest)}
	b.internal = &account{budget: b}
	set := func(k poolKind, most, each int64, full, own error) {
		p := &b.pools[k]
		p.most, p.each, p.full, p.own = most, each, full, own
	}
	set(answerBytes, limit/answersPart, limit/answersEachPart, admission.ErrNoAnswers, admission.ErrAnswersWait)
	set(requestBytes, limit/requestsPart, limit/requestsEachPart, admission.ErrNoRequests, admission.ErrRequestsWait)
	streams := limit / bytesPerStream
	set(longStreams, streams, max(1, streams/streamsShare), admission.ErrNoStreams, admission.ErrNoStreams)
	return b
}

// account is what one connection uses of the budget. It is closed with its connection. Its methods are safe for
// concurrent use.
type account struct {
	budget *budget
	conn   net.Conn // nil for the internal account

	meter   *meter             // nil for the internal account
	from    admission.Identity // the identity of the client's address
	limiter *resetLimiter      // of that identity; nil for the internal account
	open    atomic.Int64       // this connection's part of budget.open
	unread  atomic.Int64       // this connection's part of budget.unread
	// abandoned is set when the server has begun to close the connection because of its use.
	abandoned atomic.Bool

	over   chan struct{} // closed when the connection is closed
	mu     sync.Mutex
	closed bool // everything was released
	used   [kinds]int64
}

// begin opens an account for a connection.
func (b *budget) begin(conn net.Conn) *account {
	a := &account{budget: b, conn: conn, over: make(chan struct{})}
	a.meter = newMeter(a)
	if conn != nil {
		if addr := conn.RemoteAddr(); addr != nil { // nil if the client has closed the connection
			a.from = admission.IdentityOfAddress(addr.String())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accounts[a] = struct{}{}
	a.limiter = b.joinResetLimiter(a.from)
	return a
}

// close releases everything that the connection uses. Nothing waits to be sent on a closed connection.
func (a *account) close() {
	if !a.releaseAll() {
		return
	}
	close(a.over)
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	delete(a.budget.accounts, a)
	a.budget.leaveResetLimiter(a.from, time.Now())
}

// releaseAll releases everything, once. Afterwards the account counts nothing.
func (a *account) releaseAll() (first bool) {
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

// abandon closes the connection because of its use.
func (a *account) abandon() {
	if a.conn != nil && !a.abandoned.Swap(true) {
		a.budget.evicted.Add(1)
		// The deadline makes gRPC close the connection. Closing it here would need locks that the caller may hold.
		_ = a.conn.SetDeadline(time.Unix(1, 0))
	}
}

// all returns the accounts of all connections, in any order.
func (b *budget) all() []*account {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.accounts)) // order: the callers treat all alike
}

// take takes n of a pool, or returns why it cannot. If the pool is used up, the server closes the connection that uses
// most of it, provided that this one would use less. That makes room for later requests.
func (a *account) take(k poolKind, n int64) error {
	err := a.tryTake(k, n)
	if err == a.budget.pools[k].full {
		a.budget.evict(k, a, n)
	}
	return err
}

func (a *account) tryTake(k poolKind, n int64) error {
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

// spareShare is the part of a pool, and of an account's part of it, that spare memory never exceeds.
const spareShare = 4

// takeSpare takes n of a pool for work that can do with less. It leaves most of the pool, so that work which cannot always
// goes on.
func (a *account) takeSpare(k poolKind, n int64) error {
	p := &a.budget.pools[k]
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.used[k]+n > p.each/spareShare {
		return p.own
	}
	if p.used.Add(n) > p.most/spareShare {
		p.used.Add(-n)
		return p.full
	}
	a.used[k] += n
	return nil
}

// force takes n of a pool regardless of its bounds.
func (a *account) force(k poolKind, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.used[k] += n
		a.budget.pools[k].used.Add(n)
	}
}

// release returns n to a pool.
func (a *account) release(k poolKind, n int64) { a.force(k, -n) }

// evict closes the connection that uses most of a pool, if it uses more than a would and more than a sixteenth of the
// pool.
func (b *budget) evict(k poolKind, a *account, n int64) {
	largest := b.largest(k)
	if largest == nil || largest == a {
		return
	}
	a.mu.Lock()
	least := max(b.pools[k].most/16, a.used[k]+n)
	a.mu.Unlock()
	largest.mu.Lock()
	more := largest.used[k] > least // now: the search may be a little old
	largest.mu.Unlock()
	if more {
		largest.abandon()
	}
}

// searchShare bounds the part of a core that searches for the largest account take: 1/searchShare. Thousands of streams
// may wait for memory, and each asks for it again and again.
const searchShare = 20

// search is the newest search for the account that uses most of a pool.
type search struct {
	mu      sync.Mutex
	next    time.Time // no search before
	largest *account  // nil if nobody used anything
}

// largest returns the account that uses most of a pool, or did so a little while ago.
func (b *budget) largest(k poolKind) *account {
	s := &b.pools[k].search
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if began.Before(s.next) {
		return s.largest
	}
	most := int64(0)
	s.largest = nil
	for _, a := range b.all() {
		a.mu.Lock()
		if used := a.used[k]; used > most {
			s.largest, most = a, used
		}
		a.mu.Unlock()
	}
	s.next = nextSearch(began, time.Now())
	return s.largest
}

// nextSearch returns when a search may follow one that took from began to ended.
func nextSearch(began, ended time.Time) time.Time { return ended.Add(searchShare * ended.Sub(began)) }

// clientAddr is the address of a client together with the account of its connection.
type clientAddr struct {
	net.Addr
	account *account
}

// accountOf returns the account of the connection on which a request came.
func (s *Server) accountOf(ctx context.Context) *account {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(*clientAddr); ok {
			return addr.account
		}
	}
	return s.budget.internal
}

// clampToMemory lowers the limits that the memory limit does not allow.
func (c *Config) clampToMemory() {
	least := func(field *int, most int64) { *field = int(min(int64(*field), max(most, 1), math.MaxInt32)) }
	least(&c.MaxConnections, c.MemoryLimit/bytesPerConn)
	least(&c.MaxConnectionsHTTP, c.MemoryLimit/bytesPerConn/4)
	least(&c.MaxRequests, c.MemoryLimit/bytesPerRequest)
	least(&c.MaxStreams, c.MemoryLimit/bytesPerRequest)
	least(&c.MaxWatchers, c.MemoryLimit/bytesPerWatcher)
}
