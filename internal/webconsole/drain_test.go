package webconsole

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// revokerOf is a store that notes which names it was asked to revoke.
type revokerOf struct {
	*memory.Backend
	asked []string
}

func (r *revokerOf) Revoke(ctx context.Context, name string, t backend.Token, reason string, now bool) error {
	r.asked = append(r.asked, name)
	return r.Backend.Revoke(ctx, name, t, reason, now)
}

// alices is an Access whose only user is alice. Her rights may change.
type alices struct {
	rights  atomic.Pointer[Rights]
	checked chan struct{} // receives for each request whose rights were read
}

func (*alices) Open() error    { return nil }
func (*alices) Required() bool { return true }

func (*alices) Login(*http.Request, string, string) (string, error) { return "", ErrWrongPassword }

func (a *alices) Rights(*http.Request, string) (*Rights, error) {
	found := a.rights.Load()
	a.checked <- struct{}{}
	return found, nil
}

// drainSite is a console with the names of one holder, and alice, who drains it.
type drainSite struct {
	*testing.T
	store   *revokerOf
	access  *alices
	console *Console
	claims  uint64
}

func newDrainSite(t *testing.T) *drainSite {
	t.Helper()
	s := &drainSite{T: t, store: &revokerOf{Backend: memory.New().Backend()}, access: &alices{checked: make(chan struct{}, 8)}}
	var err error
	if s.console, err = New(Config{Store: s.store, Access: s.access, Base: "/console"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.console.Close)
	return s
}

// claim makes the holder hold a name.
func (s *drainSite) claim(name string) {
	s.Helper()
	s.claims++
	c := backend.Claim{Name: name, Holder: backend.Holder{ID: "holder"}, TTL: time.Hour}
	binary.BigEndian.PutUint64(c.ID[:], s.claims)
	if _, _, err := s.store.Claim(s.Context(), c); err != nil {
		s.Fatal(err)
	}
}

// permit gives alice rights, in place of those that she had.
func (s *drainSite) permit(sees, administers func(name string) bool) {
	s.access.rights.Store(&Rights{
		User: "alice", Version: new(int), Sees: sees, Administers: administers, Store: s.store,
		As: func(ctx context.Context) context.Context { return ctx },
	})
}

// drain sends the form by which alice drains the holder.
func (s *drainSite) drain() *httptest.ResponseRecorder {
	form := url.Values{
		"csrf": {s.console.csrf(viewer{admitted: true, rights: s.access.rights.Load()})}, "what": {"holder"}, "id": {"holder"}, "reason": {"r"},
	}
	r := httptest.NewRequest(http.MethodPost, "/drain", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.console.ServeHTTP(w, r)
	return w
}

func below(prefixes ...string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
}

// A drain asks for nothing but what the user may administer. Pinned names, and those of others, do not use up its limit.
func TestDrainRevokesWhatTheUserMayAdminister(t *testing.T) {
	s := newDrainSite(t)
	for i := range mostDrained {
		if i%2 == 0 {
			s.claim(fmt.Sprintf("a/%04d", i))
			continue
		}
		name := fmt.Sprintf("own/%04d", i)
		s.claim(name)
		if err := s.store.Pin(t.Context(), name, "kept"); err != nil {
			t.Fatal(err)
		}
	}
	s.claim("own/last")
	s.claim("unseen")
	s.permit(below("a/", "own/"), below("own/", "unseen"))
	w := s.drain()
	text := w.Body.String()
	if w.Code != http.StatusOK || !slices.Equal(s.store.asked, []string{"own/last"}) || strings.Contains(text, "unseen") || strings.Contains(text, "repeat it") ||
		!strings.Contains(text, fmt.Sprintf("1 of %s leases were revoked.", grouped(mostDrained+1))) || !strings.Contains(text, "a/0000: your roles lack the right to administer it.") {
		t.Errorf("%d, and the store was asked to revoke %q\n%s", w.Code, s.store.asked, text)
	}
}

func TestDrainBeyondItsLimitSaysSo(t *testing.T) {
	s := newDrainSite(t)
	for i := range mostDrained + 1 {
		s.claim(fmt.Sprintf("own/%04d", i))
	}
	s.permit(below("own/"), below("own/"))
	if w := s.drain(); len(s.store.asked) != mostDrained || !strings.Contains(w.Body.String(), "repeat it for the rest") {
		t.Errorf("%d, and the store was asked to revoke %d names\n%s", w.Code, len(s.store.asked), w.Body)
	}
}

// A drain may wait for another change. It shows and revokes nothing to which the user lost the right meanwhile.
func TestDrainThatWaitedGoesByThePresentRights(t *testing.T) {
	s := newDrainSite(t)
	for _, name := range []string{"lost/a", "own/b"} {
		s.claim(name)
	}
	s.permit(below("lost/", "own/"), below("own/"))
	s.console.changes <- struct{}{} // another change runs
	answer := make(chan *httptest.ResponseRecorder)
	go func() { answer <- s.drain() }()
	<-s.access.checked
	s.permit(below("own/"), below("own/"))
	<-s.console.changes
	w := <-answer
	if w.Code != http.StatusOK || !slices.Equal(s.store.asked, []string{"own/b"}) || strings.Contains(w.Body.String(), "lost/a") || !strings.Contains(w.Body.String(), "1 of 1 leases") {
		t.Errorf("%d, and the store was asked to revoke %q\n%s", w.Code, s.store.asked, w.Body)
	}
}
