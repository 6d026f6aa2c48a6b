package webconsole

import (
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

const (
	// mostScopes is for how many users the names that they see are kept.
	mostScopes = 64
	// scopeShare bounds the work for one user: selecting the names that the user sees takes at most this part of the
	// time.
	scopeShare = 20
)

// scopes are the names that users see. Its methods are safe for concurrent use. One user's names are selected at a time, so
// all users together use one processor at most.
type scopes struct {
	now func() clock.Instant

	mu    sync.Mutex
	users map[string]*scope
}

// scope is the part of a survey that one user sees.
type scope struct {
	of      *survey.Survey // all names
	version any            // of the rights
	visible *survey.Survey
	longest []survey.Name // of the visible names
	due     clock.Instant // when a newer survey may be selected from
	used    clock.Instant
}

func newScopes(now func() clock.Instant) *scopes {
	return &scopes{now: now, users: make(map[string]*scope)}
}

// visible returns what a user may see of what is known. It starts from nothing, so that what is new is hidden until it is
// allowed here.
func (s *scopes) visible(k *knowledge, rights *Rights) *knowledge {
	if rights == nil || rights.Root {
		return k
	}
	seen := &knowledge{
		store: k.store, cluster: k.cluster, trouble: k.trouble, readAt: k.readAt,
		fresh: make(map[string]survey.Name), details: make(map[string]detail),
	}
	for name, d := range k.details {
		if rights.All || rights.Sees(name) {
			d.attached = nil // keys have permissions of their own
			seen.details[name] = d
		}
	}
	if rights.All {
		seen.survey, seen.longest, seen.fresh, seen.recent, seen.plots = k.survey, k.longest, k.fresh, k.recent, k.plots
		return seen
	}
	if seen.trouble != "" { // it may tell a name
		seen.trouble = "the server cannot read its names"
	}
	for name, n := range k.fresh {
		if rights.Sees(name) {
			seen.fresh[name] = n
		}
	}
	for _, h := range k.recent {
		if rights.Sees(h.name) {
			seen.recent = append(seen.recent, h)
		}
	}
	if k.survey != nil {
		seen.survey, seen.longest = s.selectFor(k.survey, rights)
	}
	return seen
}

// selectFor returns the names of a survey that a user sees, and those of them with the longest queues. They may be of an
// earlier survey, if selecting takes long.
func (s *scopes) selectFor(all *survey.Survey, rights *Rights) (visible *survey.Survey, longest []survey.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := s.now()
	u, ok := s.users[rights.User]
	if ok && u.version == rights.Version && (u.of == all || began.Remaining(u.due) > 0) {
		u.used = began
		return u.visible, u.longest
	}
	if !ok && len(s.users) >= mostScopes {
		s.dropOldest(began)
	}
	u = &scope{of: all, version: rights.Version, visible: all.Filter(rights.Sees, len(all.Names)), used: began}
	u.longest = u.visible.Longest(overviewQueues)
	end := s.now()
	u.due = end.Add(max(0, scopeShare*end.Elapsed(began)))
	s.users[rights.User] = u
	return u.visible, u.longest
}

// dropOldest forgets the user who was here least recently. The caller holds the lock.
func (s *scopes) dropOldest(now clock.Instant) {
	oldest, age := "", time.Duration(-1)
	for user, u := range s.users {
		if a := now.Elapsed(u.used); a > age {
			oldest, age = user, a
		}
	}
	delete(s.users, oldest)
}
