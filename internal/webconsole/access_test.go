package webconsole

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// tokens is an Access whose only user is alice, by the token "alice". Alice sees the names below "own/".
type tokens struct {
	checked func() // is called for each check of another token
}

func (tokens) Open() error    { return nil }
func (tokens) Required() bool { return true }

func (tokens) Login(*http.Request, string, string) (string, error) { return "", ErrWrongPassword }

func (a tokens) Rights(r *http.Request, token string) (*Rights, error) {
	if token != "alice" && r.Header.Get("Authorization") != "alice" {
		if a.checked != nil && r.Header.Get("Authorization") != "" {
			a.checked()
		}
		return nil, ErrNoUser
	}
	own := func(name string) bool { return strings.HasPrefix(name, "own/") }
	return &Rights{User: "alice", Version: 1, Sees: own, Administers: own}, nil
}

// guarded returns a console with an Access that knows a trouble about a name.
func guarded(t *testing.T, a Access) *Console {
	t.Helper()
	c, err := New(Config{Store: memory.New().Backend(), Access: a, Base: "/console"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.reader.know(knowledge{trouble: "read hidden/name: the record is damaged"}, true)
	return c
}

// ask sends a request with a token, or without one.
func ask(c *Console, method, target, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

// Every page has a line about trouble. It tells those who may not see a name nothing about that name.
func TestTroubleTellsNoHiddenName(t *testing.T) {
	c := guarded(t, tokens{})
	for _, page := range []struct {
		method, target, token string
		code                  int
	}{
		{http.MethodGet, "/", "", http.StatusUnauthorized},
		{http.MethodGet, "/login", "", http.StatusOK},
		{http.MethodPost, "/revoke", "", http.StatusUnauthorized},
		{http.MethodPost, "/login", "", http.StatusForbidden},
		{http.MethodGet, "/name?name=hidden/name", "alice", http.StatusForbidden},
		{http.MethodGet, "/absent", "alice", http.StatusNotFound},
		{http.MethodPost, "/revoke", "alice", http.StatusForbidden},
	} {
		w := ask(c, page.method, page.target, page.token)
		if w.Code != page.code || strings.Contains(w.Body.String(), "is damaged") {
			t.Errorf("%s %s by %q: %d %s", page.method, page.target, page.token, w.Code, w.Body)
		}
	}
}

// A browser that has not logged in is not told that access is disabled, and gets no link to pages for root.
func TestLoginPageOffersNothing(t *testing.T) {
	text := ask(guarded(t, tokens{}), http.MethodGet, "/", "").Body.String()
	for _, wrong := range []string{"access is not enabled", `href="audit"`, `href="foreign"`} {
		if strings.Contains(text, wrong) {
			t.Errorf("the page contains %s:\n%s", wrong, text)
		}
	}
}

// Checks of unknown tokens may take long. They take no place from browsers that have logged in.
func TestUnknownTokensDelayNoSession(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	c := guarded(t, tokens{checked: func() { begun <- struct{}{}; <-end }})
	results := make(chan int)
	for range mostLogins {
		go func() { results <- ask(c, http.MethodGet, "/", "forged").Code }()
		<-begun
	}
	if w := ask(c, http.MethodGet, "/updates?page=/", "forged"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one check more: %d", w.Code)
	}
	r := httptest.NewRequest(http.MethodGet, "/absent", nil)
	r.AddCookie(c.cookie(r, c.sessions.begin("alice", "alice").id))
	w := httptest.NewRecorder()
	if c.ServeHTTP(w, r); w.Code != http.StatusNotFound {
		t.Errorf("a browser with a session: %d", w.Code)
	}
	close(end)
	for range mostLogins {
		if code := <-results; code != http.StatusUnauthorized {
			t.Errorf("a forged token: %d", code)
		}
	}
}

// Changes that wait for another take no place from pages.
func TestWaitingChangesDelayNoPage(t *testing.T) {
	visit(t, func(cfg *Config) { cfg.MaxRequests = 1 }, func(s *site) {
		s.claim("a", "holder")
		s.console.changes <- struct{}{} // one runs
		waiting := make(chan int)
		go func() { waiting <- s.send(s.form("/pin", "name", "a", "token", "1", "reason", "r")).Code }()
		synctest.Wait()
		s.get("/")
		if code := s.send(s.form("/unpin", "name", "a", "token", "1")).Code; code != http.StatusServiceUnavailable {
			s.Errorf("one change more: %d", code)
		}
		<-s.console.changes
		if code := <-waiting; code != http.StatusSeeOther {
			s.Errorf("the change: %d", code)
		}
	})
}
