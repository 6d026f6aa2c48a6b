package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

// Keys do not sort as names do. A list is complete and in order for all names and page sizes.
func TestListsAreInTheOrderOfNames(t *testing.T) {
	s := startStore(t)
	part := rapid.StringOfN(rapid.RuneFrom([]rune("a! -.0z~")), 1, 3, -1).Filter(func(p string) bool { return p != "." && p != ".." })
	rapid.Check(t, func(rt *rapid.T) {
		b := open(t, s.Addr)
		root := unique("")
		names := make(map[string]bool)
		id := s.Grant(600)
		defer s.Revoke(id)
		for _, parts := range rapid.SliceOfN(rapid.SliceOfN(part, 1, 3), 0, 12).Draw(rt, "names") {
			name := root + strings.Join(parts, "/")
			names[name] = true
			s.Put(fmt.Sprintf("%s/%x", name, id), "", id)
		}
		prefix := root + rapid.SampledFrom([]string{"", "a", "a/", "a-", "-"}).Draw(rt, "prefix")
		var want []string
		for name := range names {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			page, err := b.List(limited(t), prefix, after, limit)
			if err != nil {
				rt.Fatal(err)
			}
			for _, info := range page {
				got = append(got, info.Name)
			}
			if len(page) < limit {
				break
			}
		}
		if !slices.Equal(got, want) {
			rt.Errorf("listed %q, there are %q", got, want)
		}
	})
}

func TestListWithoutLimitIsInvalid(t *testing.T) {
	b := open(t, startStore(t).Addr)
	_, err := b.List(limited(t), "", "", 0)
	is(t, err, backend.ErrInvalid)
}

func TestGetReportsLocksOfOtherPrograms(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("foreign")
	id := s.Grant(60)
	rev := s.Put(fmt.Sprintf("%s/%x", name, id), "candidate 7", id)
	info, err := b.Get(limited(t), name)
	ok(t, err)
	if !info.Held || int64(info.Token) != rev || info.TTL != time.Minute || info.Remaining < 50*time.Second || info.Holder.Card.Text != "candidate 7" {
		t.Errorf("%+v", info)
	}
	s.Put(fmt.Sprintf("%s/%x", name, id), "\xff", id)
	if info, err = b.Get(limited(t), name); err != nil || info.Holder.Card.Text != "" {
		t.Errorf("%+v, %v", info, err)
	}
}

// events collects the events of a watch.
type events struct {
	mu    sync.Mutex
	all   []backend.Event
	block chan struct{} // reports wait until it is closed; nil if they do not wait
	end   context.CancelFunc
	ended chan error
}

func watch(t *testing.T, b *etcd.Backend, prefix string) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := &events{end: cancel, ended: make(chan error, 1)}
	go func() {
		e.ended <- b.Watch(ctx, prefix, func(ev backend.Event) {
			e.mu.Lock()
			e.all = append(e.all, ev)
			block := e.block
			e.mu.Unlock()
			if block != nil {
				<-block
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		is(t, <-e.ended, context.Canceled)
	})
	return e
}

// last returns the last event of a name, and the number of its events.
func (e *events) last(name string) (backend.Event, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var last backend.Event
	n := 0
	for _, ev := range e.all {
		if ev.Info.Name == name {
			last = ev
			n++
		}
	}
	return last, n
}

func (e *events) await(t *testing.T, name string, is func(backend.Event) bool) {
	t.Helper()
	eventually(t, "an event of "+name, func() bool {
		last, n := e.last(name)
		return n > 0 && is(last)
	})
}

func TestWatchReportsAnnouncements(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("watched")
	l, g := hold(t, b, name)
	e := watch(t, b, name)
	e.await(t, name, func(ev backend.Event) bool { return ev.Kind == backend.Resync && ev.Info.Held })
	w := enqueue(t, b, name)
	ok(t, b.Announce(limited(t), l, "here I am"))
	e.await(t, name, func(ev backend.Event) bool {
		return ev.Kind == backend.Announced && ev.Info.Holder.Card.Text == "here I am" && ev.Info.Token == g.Token && ev.Info.Waiting == 1
	})
	// A waiter announces and leaves. That is no event of the name.
	ok(t, b.Announce(limited(t), w, "me too"))
	ok(t, b.Release(limited(t), w))
	ok(t, b.Release(limited(t), l))
	e.await(t, name, func(ev backend.Event) bool { return ev.Kind == backend.Vacated })
	if _, n := e.last(name); n != 3 {
		t.Errorf("%d events: %+v", n, e.all)
	}
}

// The connection breaks, and etcd compacts its history. The watch reports the state of all names, also of names that are free
// now.
func TestWatchReportsTheStateAfterCompaction(t *testing.T) {
	s := startStore(t)
	p := startProxy(t, s.Addr)
	b, other := open(t, p.Addr()), open(t, s.Addr)
	prefix := unique("catch/")
	gone, _ := hold(t, other, prefix+"gone")
	kept, _ := hold(t, other, prefix+"kept")
	e := watch(t, b, prefix)
	e.await(t, prefix+"kept", func(ev backend.Event) bool { return ev.Kind == backend.Resync })
	p.Cut()
	hold(t, other, prefix+"cut")
	e.await(t, prefix+"cut", func(ev backend.Event) bool { return ev.Kind == backend.Acquired })
	if _, n := e.last(prefix + "kept"); n != 1 {
		t.Error("a new connection made the watch report every name again")
	}
	p.Stall(false)
	ok(t, other.Release(limited(t), gone))
	ok(t, other.Release(limited(t), kept))
	_, g := hold(t, other, prefix+"kept")
	s.Compact()
	p.Cut()
	p.Resume()
	e.await(t, prefix+"gone", func(ev backend.Event) bool { return ev.Kind == backend.Resync && !ev.Info.Held })
	e.await(t, prefix+"kept", func(ev backend.Event) bool { return ev.Kind == backend.Resync && ev.Info.Token == g.Token })
}

// A watcher whose report blocks while etcd compacts its history receives the latest state afterwards.
func TestSlowWatcherReceivesTheLatestState(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("slow")
	l, _ := hold(t, b, name)
	e := watch(t, b, name)
	e.await(t, name, func(backend.Event) bool { return true })
	e.mu.Lock()
	e.block = make(chan struct{})
	e.mu.Unlock()
	for i := range 300 {
		ok(t, b.Announce(limited(t), l, fmt.Sprint(strings.Repeat("x", 4000), i)))
	}
	s.Compact()
	close(e.block)
	e.await(t, name, func(ev backend.Event) bool { return strings.HasSuffix(ev.Info.Holder.Card.Text, "x299") })
}

// Keys outside the queues are no events.
func TestWatchIgnoresOtherKeys(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	prefix := unique("noise/")
	s.Put(prefix+"cafe", "", 0)
	e := watch(t, b, prefix)
	s.Put(prefix+"a/b", "", 0)
	s.Put(prefix+"a/beef", "", 0)
	s.Put(prefix+"/a", "", 0)
	hold(t, b, prefix+"a")
	e.await(t, prefix+"a", func(ev backend.Event) bool { return ev.Info.Held })
	for _, ev := range e.all {
		if ev.Info.Name != prefix+"a" {
			t.Errorf("%+v", ev)
		}
	}
}

func TestRevokedLeaseKeepsItsNameUntilItEnds(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("revoked")
	l, g := hold(t, b, name)
	other, _ := hold(t, b, name+"-other")
	ok(t, b.Revoke(limited(t), name, g.Token, "it hangs", false))
	got := make(map[int]backend.Renewal)
	ok(t, b.Renew(limited(t), []backend.Lease{l, other}, func(i int, r backend.Renewal) { got[i] = r }))
	if is(t, got[0].Err, backend.ErrLost); got[1].Err != nil || !strings.Contains(got[0].Err.Error(), "it hangs") {
		t.Errorf("%+v", got)
	}
	_, _, err := b.Claim(limited(t), newClaim(name, false))
	is(t, err, backend.ErrHeld)
	is(t, b.Announce(limited(t), l, "still here"), backend.ErrLost)
	for _, heir := range []string{"heir", newClaim(name, false).Holder.ID} {
		_, _, err := b.Resume(limited(t), name, g.Token, backend.Holder{ID: heir})
		if is(t, err, backend.ErrLost); err != nil && !strings.Contains(err.Error(), "it hangs") {
			t.Error(err)
		}
	}
	w := enqueue(t, b, name)
	s.Revoke(idOf(t, l)) // as if it had expired
	_, err = b.Await(limited(t), w)
	ok(t, err)
	if keys := s.Keys(name + "/"); len(keys) != 1 {
		t.Errorf("left: %v", keys)
	}
}

func TestResumePutsTheNewHolderOnTheCard(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("resumed")
	_, g := hold(t, b, name)
	_, _, err := b.Resume(limited(t), name, g.Token, backend.Holder{ID: "heir", Card: backend.Card{Text: "t"}})
	ok(t, err)
	info, err := b.Get(limited(t), name)
	if err != nil || info.Holder.ID != "heir" || info.Holder.Card.Text != "t" || info.Holder.Card.Host != "" {
		t.Errorf("%+v, %v", info, err)
	}
	_, _, err = b.Resume(limited(t), name, g.Token, backend.Holder{})
	is(t, err, backend.ErrInvalid)
}

// Close ends calls under way with ErrClosed.
func TestCloseEndsCalls(t *testing.T) {
	s := startStore(t)
	b := open(t, s.Addr)
	name := unique("closing")
	hold(t, b, name)
	l := enqueue(t, b, name)
	ended := make(chan error, 2)
	go func() {
		_, err := b.Await(limited(t), l)
		ended <- err
	}()
	go func() { ended <- b.Watch(limited(t), name, func(backend.Event) {}) }()
	time.Sleep(50 * time.Millisecond) // the calls may have begun or not
	ok(t, b.Close(limited(t)))
	is(t, <-ended, backend.ErrClosed)
	is(t, <-ended, backend.ErrClosed)
	for _, kv := range s.Keys(name + "/") {
		s.Revoke(kv.Lease)
	}
}
