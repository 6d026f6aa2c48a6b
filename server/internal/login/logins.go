package login

import (
	"container/list"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/access"
)

// DefaultTTL is how long a token lasts, as in etcd.
const DefaultTTL = 5 * time.Minute

// The bounds of the logins that a member remembers, of one user and of all. Beyond them it forgets the oldest one. So a user
// that logs in without end costs others no token.
const (
	maxUserLogins = 1 << 12
	maxLogins     = 1 << 17
)

// digest is the hash of a token's text.
type digest = [32]byte

// Logins are the simple tokens that this member knows. It learns them from the log. Make one with [NewLogins]. Its methods
// are safe for concurrent use.
type Logins struct {
	ttl time.Duration
	now func() time.Time

	mu       sync.Mutex
	byDigest map[digest]*known
	all      *list.List            // of digests, in the order of logins; the same as in byDigest
	byUser   map[string]*list.List // the same for each user
}

// known is a login that may have expired.
type known struct {
	user          string
	revision      uint64 // of the policy by which the password was checked
	used          time.Time
	inAll, inUser *list.Element
}

// NewLogins makes Logins that expire when they were not used for the TTL.
func NewLogins(ttl time.Duration) *Logins {
	return &Logins{ttl: ttl, now: time.Now, byDigest: make(map[digest]*known), all: list.New(), byUser: make(map[string]*list.List)}
}

// Learn notes logins that this member has applied. The member's goroutine calls it, so it never waits.
func (l *Logins) Learn(logins []access.Login) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, login := range logins {
		l.add(login, now)
	}
}

func (l *Logins) add(login access.Login, now time.Time) {
	if _, twice := l.byDigest[login.Digest]; twice {
		return
	}
	if e := l.all.Front(); e != nil && now.Sub(l.byDigest[e.Value.(digest)].used) > l.ttl {
		l.forget(e)
	}
	if own := l.byUser[login.User]; own != nil && own.Len() >= maxUserLogins {
		l.forget(own.Front())
	} else if l.all.Len() >= maxLogins {
		l.forget(l.all.Front())
	}
	own := l.byUser[login.User]
	if own == nil {
		own = list.New()
		l.byUser[login.User] = own
	}
	l.byDigest[login.Digest] = &known{login.User, login.Revision, now, l.all.PushBack(login.Digest), own.PushBack(login.Digest)}
}

// forget forgets the login of an element of either list.
func (l *Logins) forget(e *list.Element) {
	d := e.Value.(digest)
	k := l.byDigest[d]
	delete(l.byDigest, d)
	l.all.Remove(k.inAll)
	own := l.byUser[k.user]
	if own.Remove(k.inUser); own.Len() == 0 {
		delete(l.byUser, k.user)
	}
}

// use returns the login of a token that was used within the TTL, and notes that it is used now.
func (l *Logins) use(d digest) (login known, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, now := l.byDigest[d], l.now()
	if k == nil {
		return known{}, false
	}
	if now.Sub(k.used) > l.ttl {
		l.forget(k.inAll)
		return known{}, false
	}
	k.used = now
	return *k, true
}

// Len returns the number of remembered logins.
func (l *Logins) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byDigest)
}
