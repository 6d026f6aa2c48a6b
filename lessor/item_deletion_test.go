package lessor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// cascade is a store in which the deletion of one item revokes another lease.
type cascade struct {
	l       *Lessor
	deleted []string
}

func (c *cascade) DeleteRange(key, _ []byte) (n, rev int64) {
	c.deleted = append(c.deleted, string(key))
	if string(key) == "a1" {
		c.l.Revoke(2)
	}
	return 1, 1
}

func (*cascade) End() {}

// A store that deletes the items of one lease may end another lease. Each lease loses its own items.
func TestRangeDeleterMayEndAnotherLease(t *testing.T) {
	l := New(Config{})
	c := &cascade{l: l}
	l.SetRangeDeleter(func() TxnDelete { return c })
	for id, items := range map[ID][]Item{3: {{"c1"}, {"c2"}, {"c3"}}, 1: {{"a1"}, {"a2"}, {"a3"}}, 2: {{"b1"}, {"b2"}}} {
		if _, err := l.Grant(id, time.Minute, At(uint64(id), 0), clock.Instant{}); err != nil {
			t.Fatal(err)
		}
		if err := l.Attach(id, items); err != nil {
			t.Fatal(err)
		}
	}
	l.Revoke(3) // leaves a buffer to reuse
	l.Revoke(1)
	if want := "c1 c2 c3 a1 b1 b2 a2 a3"; strings.Join(c.deleted, " ") != want {
		t.Errorf("deleted %v, want %s", c.deleted, want)
	}
	if kept := l.itemBuffer[:cap(l.itemBuffer)]; slices.ContainsFunc(kept, func(i Item) bool { return i != Item{} }) {
		t.Errorf("the buffer still holds deleted items: %v", kept)
	}
}

// The lessor does not keep the memory of a lease with many items.
func TestLargeItemBufferIsFreed(t *testing.T) {
	l := New(Config{})
	var items []Item
	for i := range 2 * maxItemBuffer {
		items = append(items, Item{strings.Repeat("k", i+1)})
	}
	if _, err := l.Grant(1, time.Minute, At(1, 0), clock.Instant{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Attach(1, items); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Revoke(1); err != nil || cap(l.itemBuffer) > maxItemBuffer {
		t.Errorf("a buffer for %d items is kept; error: %v", cap(l.itemBuffer), err)
	}
}
