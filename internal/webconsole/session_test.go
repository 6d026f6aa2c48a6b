package webconsole

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// withSession returns a request with the cookie of a session.
func withSession(s *session) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: cookieName("session", r), Value: s.id})
	return r
}

func TestSessionsAreBoundedByUserAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(clock.Now)
		other := s.begin("bob", "t")
		var of []*session
		for range mostOfUser + 1 {
			of = append(of, s.begin("alice", "t"))
		}
		if s.of(withSession(of[0])) != nil || s.of(withSession(of[1])) != of[1] || s.of(withSession(other)) != other {
			t.Error("the oldest session of the user did not make room, or another one did")
		}
		for i := range mostSessions {
			s.begin(fmt.Sprint("user ", i), "t")
		}
		if s.order.Len() != mostSessions || len(s.byID) != mostSessions || s.of(withSession(other)) != nil {
			t.Errorf("%d sessions are kept, and %d by id", s.order.Len(), len(s.byID))
		}
		last := s.begin("carol", "t")
		s.end(last)
		if s.of(withSession(last)) != nil {
			t.Error("an ended session is found")
		}
	})
}

func TestSessionEndsAfterItsTime(t *testing.T) {
	now := clock.Now()
	s := newSessions(func() clock.Instant { return now })
	made := s.begin("alice", "t")
	now = now.Add(sessionLasts - time.Second)
	if s.of(withSession(made)) != made {
		t.Error("the session has ended early")
	}
	now = now.Add(time.Second)
	if s.of(withSession(made)) != nil {
		t.Error("the session has not ended")
	}
}

// A user sees the rest of what is known only if it is about visible names, and sees none of what a changed right hides.
func TestScopesFollowRights(t *testing.T) {
	now := clock.Now()
	s := newScopes(func() clock.Instant { return now })
	c := survey.Collect(now, 10)
	page := append(namesOf("a/1", "a/2", "b/1"), backend.Info{Name: "b/2", Held: true, Waiting: 2})
	if _, err := c.Add(page, now); err != nil {
		t.Fatal(err)
	}
	all := c.Finish(now)
	k := &knowledge{
		store: storeFacts{scheme: "x"}, cluster: new(clusterFacts), readAt: time.Unix(1, 0), foreign: new(foreignLocks),
		survey: all, longest: all.Longest(overviewQueues), recent: []happening{{name: "a/1"}, {name: "b/1"}}, fresh: map[string]survey.Name{"b/1": {}},
		details: map[string]detail{"b/1": {}}, plots: plots{held: []float64{3}}, audit: new(auditFacts), trouble: "read b/1: no",
	}
	rights := &Rights{User: "alice", Version: 1, Sees: func(name string) bool { return name[0] == 'a' }}
	seen := s.visible(k, rights)
	if len(seen.survey.Names) != 2 || len(seen.recent) != 1 || len(seen.fresh) != 0 || len(seen.details) != 0 || seen.plots.held != nil || seen.audit != nil || seen.trouble == k.trouble {
		t.Errorf("alice sees %+v", seen)
	}
	if len(k.longest) != 1 || len(seen.longest) != 0 {
		t.Errorf("of the queues %v alice sees %v", k.longest, seen.longest)
	}
	expectHidden(t, k, seen)
	withdrawn := &Rights{User: "alice", Version: 2, Sees: func(string) bool { return false }}
	if seen := s.visible(k, withdrawn); len(seen.survey.Names) != 0 {
		t.Errorf("after the right was withdrawn, alice sees %v", seen.survey.Names)
	}
	if seen := s.visible(k, &Rights{User: "bob", Version: 1, All: true}); seen.survey != k.survey || seen.audit != nil || seen.trouble != k.trouble {
		t.Errorf("bob sees %+v", seen)
	}
	if s.visible(k, &Rights{User: "root", All: true, Root: true}) != k || s.visible(k, nil) != k {
		t.Error("root does not see everything")
	}
	for i := range mostScopes + 5 {
		s.visible(k, &Rights{User: fmt.Sprint("user ", i), Version: 1, Sees: rights.Sees})
	}
	if len(s.users) != mostScopes {
		t.Errorf("%d users are kept", len(s.users))
	}
}

// expectHidden fails if a user who sees some names gets a part of what is known that this test does not list.
func expectHidden(t *testing.T, k, seen *knowledge) {
	t.Helper()
	filtered := []string{"store", "cluster", "readAt", "trouble", "survey", "recent", "fresh", "details"}
	known, shown := reflect.ValueOf(*k), reflect.ValueOf(*seen)
	for i := range known.NumField() {
		name := known.Type().Field(i).Name
		if known.Field(i).IsZero() {
			t.Errorf("the test leaves %s empty", name)
		}
		if !shown.Field(i).IsZero() && !slices.Contains(filtered, name) {
			t.Errorf("%s is not hidden", name)
		}
	}
}

// namesOf returns what a store says about free names.
func namesOf(names ...string) (all []backend.Info) {
	for _, name := range names {
		all = append(all, backend.Info{Name: name})
	}
	return all
}
