package lessor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// cascade is a store in which the end of one item ends another lease.
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

// Who deletes the items of a lease may end another one meanwhile: each loses its own items.
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
	l.Revoke(3) // there is memory to be used again
	l.Revoke(1)
	if want := "c1 c2 c3 a1 b1 b2 a2 a3"; strings.Join(c.deleted, " ") != want {
		t.Errorf("deleted %v, want %s", c.deleted, want)
	}
	if kept := l.itemBuffer[:cap(l.itemBuffer)]; slices.ContainsFunc(kept, func(i Item) bool { return i != Item{} }) {
		t.Errorf("items that are gone are kept: %v", kept)
	}
}

// The memory of many items is not kept.
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
		t.Errorf("memory for %d items is kept: %v", cap(l.itemBuffer), err)
	}
}
