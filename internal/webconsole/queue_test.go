package webconsole

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
)

func TestNamePageShowsTheQueue(t *testing.T) {
	visit(t, nil, func(s *site) {
		p := s.open(nameAddress("a"))
		if p.news(); p.cells["queue.note"].Text != "Nothing waits for the name." || p.cells["waiter.0.holder"].Text != "" {
			t.Errorf("without waiting claims: %+v", p.cells)
		}
		held, _ := s.claim("a", "me")
		for i := range queueRows + 2 {
			s.claim("a", fmt.Sprintf("w%d", i))
		}
		if err := s.store.Backend().Prefer(context.Background(), "a", "w3"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * roundInterval)
		p.news()
		for key, want := range map[string]cell{
			"waiter.0.place": {Text: "1"}, "waiter.0.holder": {Text: "w3", Link: "holder?id=w3"},
			"waiter.0.priority": {Text: "preferred", Tone: live}, "waiter.1.holder": {Text: "w0", Link: "holder?id=w0"}, "waiter.1.priority": {Text: "0"},
			"queue.note": {Text: "2 more wait behind these.", Tone: quiet},
		} {
			if p.cells[key] != want {
				t.Errorf("%s is %+v, want %+v", key, p.cells[key], want)
			}
		}
		if page := s.get(nameAddress("a")); !strings.Contains(page, `<option value="w3">`) || !strings.Contains(page, `list="waiters"`) {
			t.Errorf("the form does not offer the waiting claims:\n%s", page)
		}
		var data oneNameJSON
		s.read(nameAddress("a")+"&format=json", &data)
		if len(data.Queue) != queueRows+2 || data.Queue[0].Holder.ID != "w3" || !data.Queue[0].Preferred || data.Queue[1].Preferred {
			t.Errorf("the JSON has the queue %+v", data.Queue)
		}
		s.release(held)
		time.Sleep(2 * roundInterval)
		if p.news(); p.cells["waiter.0.holder"].Text != "w0" || p.cells["holder"].Text != "w3" {
			t.Errorf("after the release %q holds the name, and %q is the next", p.cells["holder"].Text, p.cells["waiter.0.holder"].Text)
		}
	})
}

// counting is a store that tells how many claims wait, and no more.
type counting struct{ backend.Backend }

func TestStoreWithoutAListOfWaitingClaims(t *testing.T) {
	visit(t, func(c *Config) { c.Store = counting{c.Store} }, func(s *site) {
		s.claim("a", "me")
		s.claim("a", "you")
		page := s.get(nameAddress("a"))
		if !strings.Contains(page, "This store does not list waiting claims.") || !strings.Contains(page, `<span data-k="waiting">1</span>`) || strings.Contains(page, "you") {
			t.Errorf("the page of a store that only counts is\n%s", page)
		}
		var data oneNameJSON
		if s.read(nameAddress("a")+"&format=json", &data); data.Queue != nil || data.Waiting == nil || *data.Waiting != 1 {
			t.Errorf("the JSON is %+v", data)
		}
	})
}

// listing is a store that lists waiting claims in its own way.
type listing struct {
	*memory.Backend
	queue []backend.Waiter
	err   error
}

func (l *listing) Queue(context.Context, string, int) ([]backend.Waiter, error) {
	return l.queue, l.err
}

func TestQueueThatCannotBeRead(t *testing.T) {
	for want, l := range map[string]*listing{
		"The queue cannot be read: no answer":  {err: errors.New("no answer")},
		"The queue cannot be read: upgrade it": {err: &backend.UnsupportedError{Backend: "x", What: backend.Queue, Instead: "upgrade it"}},
		"another program":                      {queue: []backend.Waiter{{Holder: backend.Holder{ID: "etcd lease 7"}, Foreign: true}}},
	} {
		visit(t, func(c *Config) { l.Backend = c.Store.(*memory.Backend); c.Store = l }, func(s *site) {
			s.claim("a", "me")
			if page := s.get(nameAddress("a")); !strings.Contains(page, want) || strings.Contains(page, "<option value=\"etcd") {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		})
	}
}
