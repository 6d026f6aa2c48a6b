package webconsole

import (
	"container/list"
	"net/http"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// sessionLasts is how long a login lasts at most. Its token may end before.
	sessionLasts = 12 * time.Hour
	// mostSessions is how many sessions there are at most, and mostOfUser how many of one user. The oldest makes room.
	mostSessions, mostOfUser = 512, 8
	// mostLogins is how many logins are checked at a time.
	mostLogins = 4
)

// session is one browser that has logged in. It is immutable.
type session struct {
	id    string // of the cookie
	user  string
	token string
	ends  clock.Instant
}

// sessions are the browsers that have logged in. Its methods are safe for concurrent use.
type sessions struct {
	now func() clock.Instant

	mu   sync.Mutex
	byID map[string]*list.Element // of order
	// order has every *session, the oldest first.
	order list.List
}

func newSessions(now func() clock.Instant) *sessions {
	return &sessions{now: now, byID: make(map[string]*list.Element)}
}

// begin makes a session.
func (s *sessions) begin(user, token string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := &session{secret(), user, token, s.now().Add(sessionLasts)}
	own := 0
	var oldest *list.Element
	for e := s.order.Back(); e != nil; e = e.Prev() {
		if e.Value.(*session).user == user {
			own, oldest = own+1, e
		}
	}
	switch {
	case own >= mostOfUser:
		s.remove(oldest)
	case s.order.Len() >= mostSessions:
		s.remove(s.order.Front())
	}
	s.byID[made.id] = s.order.PushBack(made)
	return made
}

// remove ends a session. The caller holds the lock.
func (s *sessions) remove(e *list.Element) {
	delete(s.byID, s.order.Remove(e).(*session).id)
}

// of returns the session of a request, nil if it has none.
func (s *sessions) of(r *http.Request) *session {
	cookie, err := r.Cookie(cookieName("session", r))
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.byID[cookie.Value]
	if !ok {
		return nil
	}
	found := e.Value.(*session)
	if s.now().Remaining(found.ends) <= 0 {
		s.remove(e)
		return nil
	}
	return found
}

// end ends a session.
func (s *sessions) end(ended *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.byID[ended.id]; ok {
		s.remove(e)
	}
}

// cookie returns the cookie of a session. An empty id removes it.
func (c *Console) cookie(r *http.Request, id string) *http.Cookie {
	cookie := &http.Cookie{
		Name: cookieName("session", r), Value: id, Path: c.cfg.Base + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
	if id == "" {
		cookie.MaxAge = -1
	}
	return cookie
}
