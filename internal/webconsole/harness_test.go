package webconsole

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

const host = "127.0.0.1:8080"

// site is a console on a store in memory, and one browser. Its time is that of a bubble of synctest.
type site struct {
	*testing.T
	store   *memory.Store
	shown   *memory.Backend // the console's connection to the store
	console *Console
	cookie  *http.Cookie
	claims  int // made so far
}

// visit runs a test with a console.
func visit(t *testing.T, change func(*Config), test func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := memory.NewRunningClock()
		s := &site{T: t, store: memory.New(memory.WithClock(clock))}
		s.shown = s.store.Backend()
		cfg := Config{Store: s.shown, Label: "memory:test", Hosts: []string{host}, Write: true, Now: clock.Now}
		if change != nil {
			change(&cfg)
		}
		var err error
		if s.console, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		defer s.console.Close()
		first := s.send(httptest.NewRequest(http.MethodGet, "/?token="+s.console.Token(), nil))
		if s.cookie = first.Result().Cookies()[0]; !s.cookie.HttpOnly || s.cookie.SameSite != http.SameSiteStrictMode {
			t.Errorf("the cookie is %v", s.cookie)
		}
		test(s)
	})
}

// send sends a request as the browser does.
func (s *site) send(r *http.Request) *httptest.ResponseRecorder {
	s.Helper()
	r.Host = host
	if s.cookie != nil {
		r.AddCookie(s.cookie)
	}
	w := httptest.NewRecorder()
	s.console.ServeHTTP(w, r)
	return w
}

// get returns a page, which must come.
func (s *site) get(target string) string {
	s.Helper()
	w := s.send(httptest.NewRequest(http.MethodGet, target, nil))
	if w.Code != http.StatusOK {
		s.Fatalf("GET %s: %d %s", target, w.Code, w.Body)
	}
	return w.Body.String()
}

// read decodes a page for programs.
func (s *site) read(target string, into any) {
	s.Helper()
	if err := json.Unmarshal([]byte(s.get(target)), into); err != nil {
		s.Fatalf("GET %s: %v", target, err)
	}
}

// form returns a request to change something, as the console's own page sends it.
func (s *site) form(path string, fields ...string) *http.Request {
	values := url.Values{"csrf": {s.console.keys.csrf}}
	for i := 0; i < len(fields); i += 2 {
		values.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

// claim makes a claim for a name. Its lease lasts for ten seconds.
func (s *site) claim(name, holder string) (backend.Lease, backend.Grant) {
	s.Helper()
	card := backend.Card{Host: "host-of-" + holder, PID: 7, Text: "first line\nsecond <b>line</b>"}
	l, g, err := s.store.Backend().Claim(context.Background(), backend.Claim{
		ID: s.newID(), Name: name, Holder: backend.Holder{ID: holder, Card: card}, TTL: 10 * time.Second, Wait: true,
	})
	if err != nil {
		s.Fatal(err)
	}
	return l, g
}

func (s *site) newID() (id backend.ID) {
	s.claims++
	binary.BigEndian.PutUint64(id[:], uint64(s.claims))
	return id
}

func (s *site) release(l backend.Lease) {
	s.Helper()
	if err := s.store.Backend().Release(context.Background(), l); err != nil {
		s.Fatal(err)
	}
}

// info returns what the store knows of a name.
func (s *site) info(name string) backend.Info {
	s.Helper()
	i, err := s.store.Backend().Get(context.Background(), name)
	if err != nil {
		s.Fatal(err)
	}
	return i
}

// openPage is an open page that receives updates.
type openPage struct {
	*site
	code  int
	cells cells
	mu    sync.Mutex
	text  string // not decoded yet
	leave context.CancelFunc
	gone  chan struct{}
}

// open opens the updates of a page, and waits for the first.
func (s *site) open(target string) *openPage {
	s.Helper()
	p := &openPage{site: s, code: http.StatusOK, cells: make(cells), gone: make(chan struct{})}
	r := httptest.NewRequest(http.MethodGet, "/updates?"+url.Values{"page": {target}}.Encode(), nil)
	r.Host = host
	r.AddCookie(s.cookie)
	var ctx context.Context
	ctx, p.leave = context.WithCancel(context.Background())
	go func() {
		defer close(p.gone)
		s.console.ServeHTTP(&socket{page: p, header: make(http.Header)}, r.WithContext(ctx))
	}()
	s.Cleanup(func() { p.close() })
	synctest.Wait()
	return p
}

func (p *openPage) close() {
	p.leave()
	<-p.gone
}

// news returns the cells that have arrived since the last call, and keeps them.
func (p *openPage) news() cells {
	p.Helper()
	synctest.Wait()
	p.mu.Lock()
	text := p.text
	p.text = ""
	p.mu.Unlock()
	all := make(cells)
	for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if event == "" {
			continue
		}
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok {
			p.Fatalf("the event %q has no data", event)
		}
		var changed cells
		if err := json.Unmarshal([]byte(data), &changed); err != nil {
			p.Fatal(err)
		}
		for key, c := range changed {
			all[key], p.cells[key] = c, c
		}
	}
	return all
}

// socket is the server's side of an open page.
type socket struct {
	page   *openPage
	header http.Header
}

func (s *socket) Header() http.Header { return s.header }

func (s *socket) WriteHeader(code int) { s.page.code = code }

func (s *socket) Write(b []byte) (int, error) {
	s.page.mu.Lock()
	defer s.page.mu.Unlock()
	s.page.text += string(b)
	return len(b), nil
}

func (s *socket) Flush()                           {}
func (s *socket) SetReadDeadline(time.Time) error  { return nil }
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
