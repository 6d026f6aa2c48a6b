package webconsole

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

// shared is a store that other programs use too.
type shared struct {
	*memory.Backend
	mu    sync.Mutex
	locks []backend.ForeignLock
	err   error
	asked int
	takes atomic.Int64 // nanoseconds for one reading
}

func (s *shared) ForeignKinds() []string { return []string{"etcd lock or election", "goose"} }

func (s *shared) ForeignLocks(ctx context.Context, limit int) ([]backend.ForeignLock, bool, error) {
	time.Sleep(time.Duration(s.takes.Load()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.locks[:min(limit, len(s.locks))], len(s.locks) > limit, s.err
}

// set sets what the store answers from now on.
func (s *shared) set(err error, locks ...backend.ForeignLock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks, s.err = locks, err
}

// readings returns how often the locks were read, once nothing runs.
func (s *shared) readings() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func visitShared(t *testing.T, test func(*site, *shared)) {
	t.Helper()
	store := new(shared)
	visit(t, func(c *Config) { store.Backend, c.Store = c.Store.(*memory.Backend), store }, func(s *site) { test(s, store) })
}

var (
	aLock       = backend.ForeignLock{Kind: "etcd lock or election", Name: "/cron/<b>", Holder: "etcd lease 7f", Text: "pod-1", Token: 12, TTL: time.Minute, Remaining: 30 * time.Second, Waiting: 2}
	sessionLock = backend.ForeignLock{Kind: "goose", Name: "advisory lock 4097083626", Holder: "session of process 9", Remaining: -1, Waiting: 0}
)

// An open page of foreign locks shows those that are held, counts down, and shows which have become free.
func TestForeignLocksAreShown(t *testing.T) {
	visitShared(t, func(s *site, store *shared) {
		store.set(nil, aLock, sessionLock)
		var list foreignJSON
		s.read("/foreign?format=json", &list)
		if len(list.Kinds) != 2 || len(list.Locks) != 2 || list.Locks[0].Name != aLock.Name || *list.Locks[0].Waiting != 2 || list.Locks[1].RemainingMS != nil {
			t.Errorf("the list is %+v", list)
		}
		page := s.get("/foreign")
		if !strings.Contains(page, "/cron/&lt;b&gt;") || !strings.Contains(page, `aria-current="page">Foreign locks`) || strings.Contains(page, "<form") {
			t.Errorf("the page is\n%s", page)
		}
		p := s.open("/foreign")
		p.news()
		row := foreignKey(&aLock) + "."
		if p.cells[row+"holder"].Text != "etcd lease 7f" || p.cells[row+"waiting"].Text != "2" || p.cells[row+"left"].Bar == nil || p.cells["total"].Text != "2 locks" {
			t.Errorf("the page shows %v", p.cells)
		}
		if p.cells[foreignKey(&sessionLock)+".left"].Text != "as long as its session" {
			t.Errorf("a lock of a session shows %v", p.cells[foreignKey(&sessionLock)+".left"])
		}
		another := sessionLock
		another.Kind = "other"
		store.set(nil, sessionLock, another)
		time.Sleep(2 * foreignInterval)
		if news := p.news(); news[row+"holder"].Text != "free" || news["added"].Text != "1 more: show them" {
			t.Errorf("after a change: %v", news)
		}
	})
}

// The locks are read only while a page shows them, at most every five seconds, and for a tenth of the time.
func TestForeignLocksAreReadRarely(t *testing.T) {
	visitShared(t, func(s *site, store *shared) {
		other := s.open("/")
		time.Sleep(time.Minute)
		if n := store.readings(); n != 0 {
			t.Errorf("%d readings without a page of foreign locks", n)
		}
		p := s.open("/foreign")
		q := s.open("/foreign")
		before := store.readings()
		time.Sleep(time.Minute)
		if n := store.readings() - before; n < 8 || n > 12 {
			t.Errorf("%d readings in a minute", n)
		}
		store.takes.Store(int64(3 * time.Second))
		before = store.readings()
		time.Sleep(5 * time.Minute)
		if n := store.readings() - before; n > 11 {
			t.Errorf("%d readings of three seconds in five minutes", n)
		}
		p.close()
		q.close()
		time.Sleep(interestLasts)
		before = store.readings()
		time.Sleep(time.Minute)
		if n := store.readings() - before; n != 0 {
			t.Errorf("%d readings after the page was closed", n)
		}
		other.close()
	})
}

// Locks that cannot be read are a trouble of their page alone. It keeps what it knew.
func TestForeignLocksThatCannotBeRead(t *testing.T) {
	visitShared(t, func(s *site, store *shared) {
		store.set(nil, aLock)
		p := s.open("/foreign")
		store.set(errors.New("permission denied"))
		time.Sleep(2 * foreignInterval)
		p.news()
		if text := p.cells["foreign.trouble"].Text; !strings.Contains(text, "permission denied") || p.cells["trouble"].Text != "" || p.cells["total"].Text != "1 lock" {
			t.Errorf("the page shows %v", p.cells)
		}
		store.set(nil, aLock)
		time.Sleep(2 * foreignInterval)
		if p.news(); p.cells["foreign.trouble"].Text != "" {
			t.Errorf("afterwards the page shows %v", p.cells["foreign.trouble"])
		}
	})
}

// A store that recognizes no locks of other programs has no link to their page.
func TestStoreWithoutForeignLocks(t *testing.T) {
	visit(t, nil, func(s *site) {
		if page := s.get("/"); strings.Contains(page, `href="foreign"`) {
			t.Error("the overview leads to foreign locks")
		}
		if w := s.send(httptest.NewRequest(http.MethodGet, "/foreign", nil)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "recognizes no locks") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
