package webconsole

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

// knowledgeOf returns what the console knows of a store with a number of names, all held.
func knowledgeOf(t *testing.T, names int) *knowledge {
	t.Helper()
	now := clock.Now()
	c := survey.Collect(now, mostNames)
	for i := range names {
		info := backend.Info{
			Name: fmt.Sprintf("n/%06d", i), Held: true, Token: backend.Token(i + 1), TTL: time.Minute, Remaining: time.Minute, Waiting: i % 3,
			Holder: backend.Holder{ID: fmt.Sprintf("worker-%02d", i%100), Card: backend.Card{Host: "h"}},
		}
		if _, err := c.Add([]backend.Info{info}, now); err != nil {
			t.Fatal(err)
		}
	}
	s := c.Finish(now)
	return &knowledge{survey: s, longest: s.Longest(overviewQueues), plots: plots{}}
}

// What a page and its updates allocate depends on what they show, not on how many names the store has.
func TestPageCostsWhatItShows(t *testing.T) {
	few, many := knowledgeOf(t, 500), knowledgeOf(t, 100_000)
	now := moment{clock.Now(), time.Now()}
	for _, target := range []string{"/", "/names", "/names?state=held&from=50", "/names?q=n/0001", "/store", nameAddress("n/000042")} {
		cost := func(k *knowledge) float64 {
			return testing.AllocsPerRun(5, func() {
				v, err := viewOf(target)
				if err != nil {
					t.Fatal(err)
				}
				for range 3 { // the page and two updates
					if p := v.make(k, now); len(p.cells) == 0 {
						t.Fatal("the page is empty")
					}
				}
			})
		}
		// Texts of other numbers may have another length.
		if a, b := cost(few), cost(many); b > 1.05*a+20 {
			t.Errorf("%s takes %v allocations among 500 names and %v among 100 000", target, a, b)
		}
	}
}

// An open page goes through all names once for each reading of the list, however many updates it sends.
func TestUpdatesDoNotGoThroughAllNames(t *testing.T) {
	for _, target := range []string{"/names?q=worker-07", "/host?host=h", "/holder?id=worker-07"} {
		v, err := viewOf(target)
		if err != nil {
			t.Fatal(err)
		}
		k, now := knowledgeOf(t, 1000), moment{clock.Now(), time.Now()}
		before := v.make(k, now).cells["total"]
		k.survey.Names = nil // an update that went through them would find none
		if after := v.make(k, now).cells["total"]; after != before || after.Text == "No names" {
			t.Errorf("%s: %v, and then %v", target, before, after)
		}
		next := knowledgeOf(t, 500)
		if after := v.make(next, now).cells["total"]; after == before {
			t.Errorf("%s shows the old list: %v", target, after)
		}
	}
}

// A list that takes long is read for a tenth of the time. Pages come meanwhile without waiting for it, also if no page is open.
func TestPagesDoNotWaitForALongList(t *testing.T) {
	store := &slowList{takes: 3 * time.Second}
	visit(t, func(c *Config) { store.Backend, c.Store = c.Store.(*memory.Backend), store }, func(s *site) {
		s.claim("a", "me")
		s.get("/names")
		for range 100 {
			began := time.Now()
			s.get("/names?q=a")
			if took := time.Since(began); took != 0 { // the time of the bubble passes only while a goroutine waits
				t.Fatalf("a page waited for %v", took)
			}
			time.Sleep(700 * time.Millisecond)
		}
	})
}

// slowList is a store whose list takes long.
type slowList struct {
	*memory.Backend
	takes time.Duration
}

func (s *slowList) List(ctx context.Context, prefix, after string, limit int) ([]backend.Info, error) {
	time.Sleep(s.takes)
	return s.Backend.List(ctx, prefix, after, limit)
}

// A list that takes long is read in parts, and an open page of a name has news in between.
func TestLongListDoesNotDelayOpenPages(t *testing.T) {
	store := &slowList{takes: 2 * time.Second}
	visit(t, func(c *Config) { store.Backend, c.Store = c.Store.(*memory.Backend), store }, func(s *site) {
		for i := range 5*listPage + 1 {
			s.claim(fmt.Sprintf("n/%05d", i), "me")
		}
		var list namesJSON
		s.read("/names?format=json", &list)
		if list.Total != 5*listPage+1 {
			t.Errorf("the list has %d names", list.Total)
		}
		p := s.open(nameAddress("a"))
		p.news()
		for i := range 20 { // among them are those at which the next list is read
			l, _ := s.claim("a", "me")
			time.Sleep(3 * (store.takes + roundInterval))
			if p.news(); p.cells["state"].Text != "Held" {
				t.Fatalf("turn %d: the page shows %v", i, p.cells["state"])
			}
			s.release(l)
			time.Sleep(3 * (store.takes + roundInterval))
			if p.news(); p.cells["state"].Text != "Free" {
				t.Fatalf("turn %d: the page shows %v", i, p.cells["state"])
			}
		}
	})
}
