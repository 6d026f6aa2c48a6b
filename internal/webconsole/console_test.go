package webconsole

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// targets returns an address of each kind of page.
func targets(name, holder string) []string {
	return []string{"/", "/names", "/names?q=" + url.QueryEscape(name), "/names?state=held", nameAddress(name), "/" + link("holder", "id", holder), "/" + link("host", "host", "host-of-"+holder), "/store"}
}

func nameAddress(name string) string { return "/" + nameLink(name) }

// A name, a holder and a card full of markup are text on every page.
func TestMarkupInNamesIsText(t *testing.T) {
	const name, holder = `<script>alert(1)</script>"'&`, `<img src=x onerror=alert(2)>"'`
	visit(t, nil, func(s *site) {
		s.claim(name, holder)
		s.claim(name, holder+"2")
		for _, target := range targets(name, holder) {
			page := s.get(target)
			if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") || strings.Contains(page, "line</b>") {
				t.Errorf("GET %s has markup of another program:\n%s", target, page)
			}
			if !strings.Contains(page, `<main id="main"`) || !strings.Contains(page, "</html>") {
				t.Errorf("GET %s is not whole:\n%s", target, page)
			}
		}
	})
}

// Every answer forbids the browser to load anything from elsewhere, and to run any script but the console's.
func TestAnswersHaveAContentPolicy(t *testing.T) {
	visit(t, nil, func(s *site) {
		for _, target := range append(targets("a", "me"), "/nothing", "/assets/console.js", "/?token=wrong") {
			h := s.send(httptest.NewRequest(http.MethodGet, target, nil)).Header()
			if got := h.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; script-src 'self';") || strings.Contains(got, "unsafe") {
				t.Errorf("GET %s has the policy %q", target, got)
			}
		}
	})
}

// Each page has the same content for programs.
func TestPagesForPrograms(t *testing.T) {
	visit(t, nil, func(s *site) {
		s.claim("jobs/a", "me")
		s.claim("jobs/a", "you")
		ended, _ := s.claim("jobs/b", "me")
		s.release(ended)
		var overview overviewJSON
		s.read("/?format=json", &overview)
		if overview.Held != 1 || overview.Free != 1 || overview.Waiting == nil || *overview.Waiting != 1 || len(overview.Queues) != 1 || overview.Trouble != "" {
			t.Errorf("the overview is %+v", overview)
		}
		var list namesJSON
		s.read("/names?format=json&state=held", &list)
		if list.Total != 1 || list.Names[0].Name != "jobs/a" || *list.Names[0].RemainingMS != 10_000 {
			t.Errorf("the list is %+v", list)
		}
		var one oneNameJSON
		s.read(nameAddress("jobs/b")+"&format=json", &one)
		if one.Held || len(one.History) != 1 || one.History[0].Why != string(backend.Released) {
			t.Errorf("the name is %+v", one)
		}
		var who holderJSON
		s.read("/holder?id=me&format=json", &who)
		if who.Holder != "me" || who.Total != 1 || who.Drain != (drainJSON{Moves: 1}) {
			t.Errorf("the holder is %+v", who)
		}
		s.read("/host?host=host-of-me&format=json", &who)
		if who.Host != "host-of-me" || who.Total != 1 {
			t.Errorf("the host is %+v", who)
		}
		var store storeJSON
		s.read("/store?format=json", &store)
		if store.Scheme != "memory" || !store.Can.Revoke || store.NamesRead != 2 {
			t.Errorf("the store is %+v", store)
		}
	})
}

func TestPagesThatDoNotExist(t *testing.T) {
	visit(t, nil, func(s *site) {
		for target, code := range map[string]int{
			"/nothing": 404, "/names?from=x": 400, "/names?from=-1": 400, "/names?state=x": 400, "/name": 400, "/holder": 400, "/host?host=": 400,
			"/updates": 400, "/updates?page=x": 400, "/updates?page=/nothing": 400, "/updates?page=/names?from=x": 400, "/names?q=" + strings.Repeat("x", mostQuery): 414,
		} {
			if w := s.send(httptest.NewRequest(http.MethodGet, target, nil)); w.Code != code {
				t.Errorf("GET %.40s: %d %s", target, w.Code, w.Body)
			}
		}
	})
}

func TestStrangersAreRefused(t *testing.T) {
	visit(t, nil, func(s *site) {
		known := s.cookie
		ask := func(target, host string, cookie *http.Cookie) int {
			r := httptest.NewRequest(http.MethodGet, target, nil)
			r.Host = host
			if cookie != nil {
				r.AddCookie(cookie)
			}
			w := httptest.NewRecorder()
			s.console.ServeHTTP(w, r)
			return w.Code
		}
		forged := *known
		forged.Value = strings.Repeat("0", len(known.Value))
		for _, target := range append(targets("a", "me"), "/updates?page=/") {
			if code := ask(target, host, nil); code != http.StatusForbidden {
				t.Errorf("%s without a cookie: %d", target, code)
			}
			if code := ask(target, host, &forged); code != http.StatusForbidden {
				t.Errorf("%s with a forged cookie: %d", target, code)
			}
			if code := ask(target, "evil.example", known); code != http.StatusMisdirectedRequest {
				t.Errorf("%s under another name: %d", target, code)
			}
		}
		if code := ask("/?token="+strings.Repeat("0", 48), host, nil); code != http.StatusForbidden {
			t.Errorf("a wrong token: %d", code)
		}
		r := httptest.NewRequest(http.MethodGet, "/name?name=a&token="+s.console.Token(), nil)
		if to := s.send(r).Header().Get("Refresh"); to != "0; url=./name?name=a" {
			t.Errorf("the token leads to %q", to)
		}
	})
}

// An open page shows what happens without being loaded again, and gets only what has changed.
func TestOpenPageShowsWhatHappens(t *testing.T) {
	visit(t, nil, func(s *site) {
		p := s.open(nameAddress("a"))
		if p.news(); p.cells["state"].Text != "Free" || p.cells["left"].Text != dash {
			t.Errorf("before: %v", p.cells)
		}
		l, g := s.claim("a", "me")
		time.Sleep(2 * roundInterval)
		news := p.news()
		if news["state"] != (cell{Text: "Held", Tone: live}) || news["holder"].Text != "me" || news["token"].Text != g.Token.String() || news["left"].Bar == nil {
			t.Errorf("after a claim: %v", news)
		}
		time.Sleep(3 * roundInterval)
		if news = p.news(); slices.Contains(slices.Collect(maps.Keys(news)), "left") {
			t.Errorf("a lease that runs down as expected is sent again: %v", news)
		}
		time.Sleep(12 * time.Second)
		if news = p.news(); news["state"].Text != "Free" || news["history.0.why"] != (cell{Text: string(backend.Expired), Tone: warn}) {
			t.Errorf("after the lease has ended: %v", news)
		}
		s.release(l) // nothing is left of it
	})
}

// The first page and all updates together are the page that one would load now.
func TestUpdatesAddUpToThePage(t *testing.T) {
	visit(t, nil, func(s *site) {
		s.claim("a", "me")
		pages := make(map[string]*openPage)
		for _, target := range targets("a", "me") {
			pages[target] = s.open(target)
		}
		for turn := range 20 {
			l, _ := s.claim("a", "me")
			time.Sleep(time.Duration(turn) * 300 * time.Millisecond)
			if turn%3 != 0 {
				s.release(l)
			}
			time.Sleep(2 * roundInterval)
			known, _ := s.console.reader.latest()
			for target, p := range pages {
				p.news()
				v, err := viewOf(target)
				if err != nil {
					t.Fatal(err)
				}
				for key, want := range v.make(known, s.console.now()).cells {
					got := p.cells[key]
					got.Bar, want.Bar = nil, nil
					// The script of the page counts down, and the picture of tenures is of the last update.
					if want.Link == "" && strings.HasSuffix(want.Text, " s") || strings.HasPrefix(key, "timeline.") {
						continue
					}
					if got != want {
						t.Fatalf("turn %d, %s, %s: the page shows %+v, and a new one %+v", turn, target, key, got, want)
					}
				}
			}
		}
	})
}

// counted counts the readings of a store, and can fail.
type counted struct {
	*memory.Backend
	mu    sync.Mutex
	lists int
	err   error
}

func (c *counted) List(ctx context.Context, prefix, after string, limit int) ([]backend.Info, error) {
	c.mu.Lock()
	err := c.err
	c.lists++
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return c.Backend.List(ctx, prefix, after, limit)
}

func (c *counted) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// readings returns how often the store was read, once nothing runs.
func (c *counted) readings() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

// While no page is open, the store is not read.
func TestNobodyLooksSoNothingIsRead(t *testing.T) {
	store := new(counted)
	visit(t, func(c *Config) { store.Backend, c.Store = c.Store.(*memory.Backend), store }, func(s *site) {
		time.Sleep(time.Minute)
		if n := store.readings(); n != 0 {
			t.Errorf("%d readings before the first page", n)
		}
		p := s.open("/")
		time.Sleep(time.Minute)
		if n := store.readings(); n < 50 || n > 65 {
			t.Errorf("%d readings in a minute with an open page", n)
		}
		p.close()
		time.Sleep(interestLasts + roundInterval)
		before := store.readings()
		time.Sleep(time.Hour)
		if n := store.readings() - before; n != 0 {
			t.Errorf("%d readings in an hour without a page", n)
		}
	})
}

// A store that fails is said to fail, with the time of the figures that are shown. It is asked less and less often.
func TestTroubleIsShown(t *testing.T) {
	store := new(counted)
	visit(t, func(c *Config) { store.Backend, c.Store = c.Store.(*memory.Backend), store }, func(s *site) {
		s.claim("a", "me")
		p := s.open("/")
		p.news()
		store.fail(errors.New("the disk is \x1b[31mgone"))
		time.Sleep(3 * roundInterval)
		if p.news(); p.cells["held"].Text != "1" || !strings.Contains(p.cells["trouble"].Text, `the figures are those of`) || !strings.Contains(p.cells["trouble"].Text, `\x1b[31mgone`) {
			t.Errorf("the page shows %v", p.cells["trouble"])
		}
		before := store.readings()
		time.Sleep(10 * time.Minute)
		if n := store.readings() - before; n > 45 {
			t.Errorf("a store in trouble was asked %d times in ten minutes", n)
		}
		store.fail(nil)
		time.Sleep(longestPause + roundInterval)
		if p.news(); p.cells["trouble"].Text != "" {
			t.Errorf("afterwards the page shows %v", p.cells["trouble"])
		}
	})
}

// A store that has never answered has no figures.
func TestStoreThatNeverAnswered(t *testing.T) {
	store := &counted{err: errors.New("no route")}
	visit(t, func(c *Config) { store.Backend, c.Store = c.Store.(*memory.Backend), store }, func(s *site) {
		if page := s.get("/"); !strings.Contains(page, "The store does not answer: list the names: no route") {
			t.Errorf("the page is\n%s", page)
		}
	})
}

// Open pages and requests beyond the limits are refused, and have a place again when others have left.
func TestLimits(t *testing.T) {
	visit(t, func(c *Config) { c.MaxPages, c.MaxRequests = 2, 1 }, func(s *site) {
		first, second := s.open("/"), s.open("/names")
		if refused := s.open("/store"); refused.code != http.StatusServiceUnavailable {
			t.Errorf("the third page: %d", refused.code)
		}
		first.close()
		if again := s.open("/store"); again.code != http.StatusOK || len(again.news()) == 0 {
			t.Errorf("after one has left: %d", again.code)
		}
		second.close()
		s.console.requests <- struct{}{}
		if w := s.send(httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("a request beyond the limit: %d", w.Code)
		}
		<-s.console.requests
		s.get("/")
	})
}

// A list has pages, and an open one does not jump when names are added.
func TestPagesOfNames(t *testing.T) {
	visit(t, nil, func(s *site) {
		for i := range 2*rowsPerPage + 1 {
			s.claim("n/"+string(rune('a'+i/26))+string(rune('a'+i%26)), "me")
		}
		var all []string
		next := "names?state=held"
		for pages := 0; next != ""; pages++ {
			var list namesJSON
			s.read("/"+next+"&format=json", &list)
			for _, n := range list.Names {
				all = append(all, n.Name)
			}
			if next = list.Next; pages > 3 {
				t.Fatal("the list does not end")
			}
		}
		if len(all) != 2*rowsPerPage+1 || !slices.IsSorted(all) {
			t.Errorf("%d names: %q", len(all), all)
		}
		p := s.open("/names")
		p.news()
		s.claim("a", "me")
		time.Sleep(2 * roundInterval)
		if news := p.news(); news["added"].Text != "1 more name: show it" || news[keyOf("a")+".holder"].Text != "" {
			t.Errorf("after a name was added: %v", news)
		}
	})
}

func TestInvalidConfigurations(t *testing.T) {
	b := memory.New().Backend()
	for _, cfg := range []Config{{}, {Store: b, MaxPages: -1}, {Store: b, MaxRequests: -1}} {
		if c, err := New(cfg); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%+v: %v, %v", cfg, c, err)
		}
	}
}
