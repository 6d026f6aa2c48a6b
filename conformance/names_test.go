package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Our own service is not part of etcd's API, but it must exclude holders that use that API. These tests speak JSON over
// HTTP to it, so that this module imports none of our code.

// onOurs runs a test on our server, and not on etcd.
func onOurs(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	onTargets(t, chosen(leasekeeper, follower, everyone), test)
}

// answer is one line of a stream.
type answer struct {
	Result struct {
		State string
		Lease string
		Token string
		Place int
	}
	Error struct{ Message string }
}

// asked is a request to our own service with its answer.
type asked struct {
	s     *server
	body  *http.Response
	lines *bufio.Reader
}

func (s *server) ask(path, format string, args ...any) (*asked, error) {
	r, err := http.NewRequestWithContext(s.context(), http.MethodPost, "http://"+s.httpAddr+"/v1/"+path, strings.NewReader(fmt.Sprintf(format, args...)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return &asked{s, resp, bufio.NewReader(resp.Body)}, nil
}

// read reads the next line of a stream.
func (a *asked) read() (got answer, err error) {
	line, err := a.lines.ReadBytes('\n')
	if err != nil {
		return got, err
	}
	if err := json.Unmarshal(line, &got); err != nil {
		return got, err
	}
	if got.Error.Message != "" {
		return got, fmt.Errorf("refused: %s", got.Error.Message)
	}
	return got, nil
}

// acquire asks for a name and expects an answer of that state.
func (s *server) acquire(name string, wait bool, state string) (*asked, answer) {
	s.t.Helper()
	a, err := s.ask("acquire", `{"name": %q, "ttlMs": 60000, "wait": %t}`, name, wait)
	wantOK(s.t, "acquire", err)
	return a, a.want(state)
}

func (a *asked) want(state string) answer {
	a.s.t.Helper()
	got, err := a.read()
	wantOK(a.s.t, "answer to acquire", err)
	wantEqual(a.s.t, "state", got.Result.State, state)
	return got
}

func (s *server) release(name, lease string) error {
	a, err := s.ask("release", `{"name": %q, "lease": %q}`, name, lease)
	if err != nil {
		return err
	}
	defer a.body.Body.Close()
	if a.body.StatusCode != http.StatusOK {
		return fmt.Errorf("release: %s", a.body.Status)
	}
	return nil
}

func TestNamesExcludeMutex(t *testing.T) {
	onOurs(t, func(t *testing.T, s *server) {
		st := s.store()
		_, ours := s.acquire("name", false, "HELD")
		token, err := strconv.ParseInt(ours.Result.Token, 10, 64)
		wantOK(t, "token", err)
		resp, err := st.c.Get(s.context(), "name/", clientv3.WithPrefix())
		wantOK(t, "get", err)
		wantEqual(t, "create revision", resp.Kvs[0].CreateRevision, token)

		m := concurrency.NewMutex(s.session(60), "name")
		wantIs(t, "try", m.TryLock(s.context()), concurrency.ErrLocked)
		locked := begin(func() error { return m.Lock(s.context()) })
		st.awaitMembers("name", 2)
		waiting, place := s.acquire("name", true, "WAITING")
		wantEqual(t, "place", place.Result.Place, 2)
		wantOK(t, "release", s.release("name", ours.Result.Lease))
		wantOK(t, "lock", <-locked)
		s.acquire("name", false, "REFUSED")
		wantOK(t, "unlock", m.Unlock(s.context()))
		again := waiting.want("HELD")
		wantEqual(t, "token", again.Result.Token, place.Result.Token)
		wantIs(t, "try", m.TryLock(s.context()), concurrency.ErrLocked)
	})
}

func TestNamesExcludeLockService(t *testing.T) {
	onOurs(t, func(t *testing.T, s *server) {
		l := s.locks()
		key := l.lock("name", 0)
		waiting, place := s.acquire("name", true, "WAITING")
		next := l.beginLock(s.context(), "name", 0)
		s.store().awaitMembers("name", 3)
		l.unlock(key)
		waiting.want("HELD")
		wantOK(t, "release", s.release("name", place.Result.Lease))
		wantOK(t, "lock", <-next)
		s.acquire("name", false, "REFUSED")
		// One level down is another name.
		s.acquire("name/below", false, "HELD")
	})
}

func TestNamesExcludeEtcdctlLock(t *testing.T) {
	onOurs(t, func(t *testing.T, s *server) {
		st := s.store()
		first := s.startCtl("lock", "name")
		first.wantMember("name", "")
		waiting, place := s.acquire("name", true, "WAITING")
		second := s.startCtl("lock", "name")
		st.awaitMembers("name", 3)
		first.signal(os.Interrupt)
		first.wantEnd(0)
		waiting.want("HELD")
		wantEqual(t, "the second has printed", len(second.lines), 0)
		wantOK(t, "release", s.release("name", place.Result.Lease))
		second.wantMember("name", "")
		second.signal(os.Interrupt)
		second.wantEnd(0)
		wantEqual(t, "left over", st.all(), "")
	})
}

// Holders of both kinds take turns, and never meet.
func TestNamesAndMutexesNeverMeet(t *testing.T) {
	onOurs(t, func(t *testing.T, s *server) {
		const holders, rounds = 4, 15
		var inside atomic.Int32
		enter := func() {
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d inside", n)
			}
			inside.Add(-1)
		}
		var wg sync.WaitGroup
		for range holders {
			m := concurrency.NewMutex(s.session(60), "name")
			wg.Go(func() {
				for range rounds {
					if err := m.Lock(t.Context()); err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					enter()
					if err := m.Unlock(t.Context()); err != nil {
						t.Errorf("unlock: %v", err)
						return
					}
				}
			})
			wg.Go(func() {
				for range rounds {
					lease, err := s.acquireAndWait("name")
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					enter()
					if err := s.release("name", lease); err != nil {
						t.Errorf("release: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func (s *server) acquireAndWait(name string) (lease string, err error) {
	a, err := s.ask("acquire", `{"name": %q, "ttlMs": 60000, "wait": true}`, name)
	if err != nil {
		return "", err
	}
	defer a.body.Body.Close()
	for {
		got, err := a.read()
		if err != nil || got.Result.State == "HELD" {
			return got.Result.Lease, err
		}
	}
}

// Holders and waiters are still there after the server was killed.
func TestRestartKeepsNames(t *testing.T) {
	onOurs(t, func(t *testing.T, s *server) {
		_, first := s.acquire("name", false, "HELD")
		_, second := s.acquire("name", true, "WAITING")
		s.kill()
		http.DefaultClient.CloseIdleConnections()
		s.start()
		s.acquire("name", false, "REFUSED")
		wantOK(t, "release", s.release("name", first.Result.Lease))
		resumed, err := s.ask("acquire", `{"name": "name", "lease": %q, "ttlMs": 60000, "wait": true}`, second.Result.Lease)
		wantOK(t, "acquire again", err)
		wantEqual(t, "token", resumed.want("HELD").Result.Token, second.Result.Token)
		history, err := s.ask("history", `{"name": "name"}`)
		wantOK(t, "history", err)
		var got struct{ Tenures []struct{ Token, Why string } }
		wantOK(t, "history", json.NewDecoder(history.body.Body).Decode(&got))
		if len(got.Tenures) != 2 || got.Tenures[1].Token != first.Result.Token || got.Tenures[1].Why != "RELEASED" {
			t.Errorf("history: %+v", got)
		}
	})
}
