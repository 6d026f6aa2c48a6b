package webconsole

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
)

// post sends a form and returns the status.
func (s *site) post(path string, fields ...string) int {
	s.Helper()
	return s.send(s.form(path, fields...)).Code
}

func TestRevoke(t *testing.T) {
	visit(t, nil, func(s *site) {
		l, g := s.claim("a", "me")
		w := s.send(s.form("/revoke", "name", "a", "token", g.Token.String(), "reason", "it hangs"))
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != nameAddress("a") {
			t.Errorf("%d to %q: %s", w.Code, w.Header().Get("Location"), w.Body)
		}
		err := s.store.Backend().Renew(context.Background(), []backend.Lease{l}, func(_ int, r backend.Renewal) {
			if r.Err == nil || !strings.Contains(r.Err.Error(), "it hangs") {
				t.Errorf("a renewal after it: %v", r.Err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		_, g = s.claim("b", "me")
		if code := s.post("/revoke", "name", "b", "token", g.Token.String(), "reason", "now", "now", "1"); code != http.StatusSeeOther || s.info("b").Held {
			t.Errorf("at once: %d, and the name is held: %v", code, s.info("b").Held)
		}
	})
}

// A change applies to the tenure that the page showed, and to no later one.
func TestChangeOfALaterTenureIsRefused(t *testing.T) {
	visit(t, nil, func(s *site) {
		l, g := s.claim("a", "me")
		s.claim("a", "you")
		s.release(l)
		for _, path := range []string{"/revoke", "/pin", "/transfer"} {
			w := s.send(s.form(path, "name", "a", "token", g.Token.String(), "reason", "r"))
			if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "Go back to see the name as it is now.") || !strings.Contains(w.Body.String(), `href="name?name=a"`) {
				t.Errorf("%s: %d\n%s", path, w.Code, w.Body)
			}
		}
		if i := s.info("a"); i.Holder.ID != "you" || i.Pinned != "" {
			t.Errorf("the name is %+v", i)
		}
	})
}

func TestPinAndUnpin(t *testing.T) {
	visit(t, nil, func(s *site) {
		_, g := s.claim("a", "me")
		token := g.Token.String()
		if code := s.post("/pin", "name", "a", "token", token, "reason", "keep it"); code != http.StatusSeeOther || s.info("a").Pinned != "keep it" {
			t.Errorf("pin: %d, %+v", code, s.info("a"))
		}
		for _, path := range []string{"/revoke", "/transfer"} {
			if code := s.post(path, "name", "a", "token", token, "reason", "r"); code != http.StatusConflict {
				t.Errorf("%s of a pinned name: %d", path, code)
			}
		}
		if page := s.get(nameAddress("a")); !strings.Contains(page, "Pinned: keep it") || !strings.Contains(page, "Remove the pin") {
			t.Errorf("the page is\n%s", page)
		}
		if code := s.post("/unpin", "name", "a", "token", token); code != http.StatusSeeOther || s.info("a").Pinned != "" {
			t.Errorf("unpin: %d, %+v", code, s.info("a"))
		}
	})
}

func TestTransfer(t *testing.T) {
	visit(t, nil, func(s *site) {
		_, g := s.claim("a", "me")
		s.claim("a", "second")
		s.claim("a", "third")
		if code := s.post("/transfer", "name", "a", "token", g.Token.String()); code != http.StatusSeeOther || s.info("a").Holder.ID != "second" {
			t.Errorf("to the next: %d, %+v", code, s.info("a"))
		}
		s.claim("a", "fourth")
		if code := s.post("/transfer", "name", "a", "token", s.info("a").Token.String(), "to", "fourth"); code != http.StatusSeeOther {
			t.Errorf("to another: %d", code)
		}
		if code := s.post("/transfer", "name", "a", "token", s.info("a").Token.String(), "to", "nobody"); code < 400 {
			t.Errorf("to somebody who does not wait: %d", code)
		}
	})
}

func TestDrain(t *testing.T) {
	visit(t, nil, func(s *site) {
		for _, name := range []string{"a", "b", "c"} {
			s.claim(name, "me")
		}
		s.claim("other", "you")
		if code := s.post("/pin", "name", "c", "token", s.info("c").Token.String(), "reason", "keep"); code != http.StatusSeeOther {
			t.Fatal(code)
		}
		w := s.send(s.form("/drain", "what", "host", "id", "host-of-me", "reason", "maintenance"))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "2 of 3 leases were revoked.") || !strings.Contains(w.Body.String(), "c is pinned.") {
			t.Errorf("%d\n%s", w.Code, w.Body)
		}
		for _, fields := range [][]string{{"what", "holder", "id", "me"}, {"what", "holder", "id", "", "reason", "r"}, {"what", "x", "id", "me", "reason", "r"}} {
			if code := s.post("/drain", fields...); code != http.StatusBadRequest {
				t.Errorf("%q: %d", fields, code)
			}
		}
	})
}

// Nothing changes the store but a form of this console.
func TestChangesThatAreRefused(t *testing.T) {
	paths := []string{"/revoke", "/pin", "/unpin", "/transfer", "/drain"}
	fields := func(s *site) []string {
		return []string{"name", "a", "token", s.info("a").Token.String(), "reason", "r", "what", "holder", "id", "me"}
	}
	refused := func(s *site, what, path string, r *http.Request, want int) {
		s.Helper()
		if w := s.send(r); w.Code != want {
			s.Errorf("%s, %s: %d\n%s", path, what, w.Code, w.Body)
		}
		if i := s.info("a"); !i.Held || i.Pinned != "" {
			s.Errorf("%s, %s: the name is %+v", path, what, i)
		}
	}
	visit(t, nil, func(s *site) {
		s.claim("a", "me")
		for _, path := range paths {
			r := s.form(path, append(fields(s), "csrf", "wrong")...)
			refused(s, "the form is of another console", path, r, http.StatusForbidden)
			r = s.form(path, fields(s)...)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			refused(s, "another site sends it", path, r, http.StatusForbidden)
			r = s.form(path, append(fields(s), "reason", strings.Repeat("x", mostReason+1))...)
			refused(s, "the reason is too long", path, r, http.StatusBadRequest)
			r = s.form(path, append(fields(s), "reason", strings.Repeat("x", mostForm))...)
			refused(s, "the form is too long", path, r, http.StatusBadRequest)
			refused(s, "it is not a form", path, httptest.NewRequest(http.MethodGet, path, nil), http.StatusNotFound)
			if path != "/drain" {
				refused(s, "no token", path, s.form(path, append(fields(s), "token", "0")...), http.StatusBadRequest)
				refused(s, "no name", path, s.form(path, append(fields(s), "name", "")...), http.StatusBadRequest)
			}
			cookie := s.cookie
			s.cookie = nil
			refused(s, "the browser has shown no token", path, s.form(path, fields(s)...), http.StatusForbidden)
			s.cookie = cookie
		}
		refused(s, "no reason", "/revoke", s.form("/revoke", append(fields(s), "reason", "")...), http.StatusBadRequest)
	})
	visit(t, func(c *Config) { c.Write = false }, func(s *site) {
		s.claim("a", "me")
		for _, path := range paths {
			refused(s, "the console is read-only", path, s.form(path, fields(s)...), http.StatusForbidden)
		}
		if page := s.get(nameAddress("a")); strings.Contains(page, "<form") || !strings.Contains(page, "--write") {
			t.Errorf("the page is\n%s", page)
		}
	})
}
