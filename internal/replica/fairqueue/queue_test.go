package fairqueue

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func always(uint64) bool { return true }

// take takes the next item.
func take(t *testing.T, q *Queue[uint64]) uint64 {
	t.Helper()
	value, ok := q.Next(always)
	if !ok {
		t.Fatal("nothing waits")
	}
	return value
}

// TestItemOfAnotherClientOvertakesABacklog has one client with thousands of items waiting, and another that adds one.
func TestItemOfAnotherClientOvertakesABacklog(t *testing.T) {
	q := New[uint64](10_000, 1<<30)
	for i := range uint64(5000) {
		q.Add("many", Item[uint64]{Value: i, Bytes: 1, Cost: 10})
	}
	for range 100 {
		take(t, q)
	}
	q.Add("one", Item[uint64]{Value: 1 << 20, Bytes: 1, Cost: 10})
	first, second := take(t, q), take(t, q)
	if first != 1<<20 && second != 1<<20 {
		t.Errorf("the items %d and %d are served first", first, second)
	}
}

// TestLateClientGetsNoMoreThanItsShare has a client come to another one that has been served for long. From then on both
// are served alike.
func TestLateClientGetsNoMoreThanItsShare(t *testing.T) {
	q := New[uint64](1000, 1<<30)
	for i := range uint64(100) {
		q.Add("early", Item[uint64]{Value: i, Cost: 10})
	}
	for range 50 {
		take(t, q)
	}
	for i := range uint64(100) {
		q.Add("late", Item[uint64]{Value: 1000 + i, Cost: 10})
	}
	late := 0
	for i := range 40 {
		if take(t, q) >= 1000 {
			late++
		}
		if early := i + 1 - late; early < late-1 || early > late+1 {
			t.Fatalf("%d items of the early client and %d of the late one", early, late)
		}
	}
}

// TestOneClientLeavesRoomToOthers has one client add items until it has its share, by number and by bytes. Others find room
// then.
func TestOneClientLeavesRoomToOthers(t *testing.T) {
	for _, bytes := range []int{1, 100} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			q := New[uint64](1000, 10_000)
			leftItems, leftBytes := 1000, 10_000
			for _, client := range []string{"a", "b", "c"} {
				taken := 0
				for ; !q.Full(client, bytes); taken++ {
					q.Add(client, Item[uint64]{Bytes: bytes})
				}
				if want := min(leftItems-leftItems/4, (leftBytes-leftBytes/4)/bytes); taken != want {
					t.Errorf("client %s has %d items, want %d", client, taken, want)
				}
				leftItems, leftBytes = leftItems-taken, leftBytes-taken*bytes
			}
		})
	}
}

// TestFullQueueTakesNothing fills a queue with one item of each client.
func TestFullQueueTakesNothing(t *testing.T) {
	q := New[uint64](10, 100)
	clients := 0
	for ; !q.Full(fmt.Sprint(clients), 30); clients++ {
		q.Add(fmt.Sprint(clients), Item[uint64]{Bytes: 30})
	}
	if clients != 4 || q.Bytes() != 120 {
		t.Errorf("%d items with %d bytes", clients, q.Bytes())
	}
	q = New[uint64](10, 100)
	for clients = 0; !q.Full(fmt.Sprint(clients), 1); clients++ {
		q.Add(fmt.Sprint(clients), Item[uint64]{Bytes: 1})
	}
	if clients != 10 {
		t.Errorf("%d items", clients)
	}
}

// TestQueue compares a queue with the lists of its clients' items. Each client's are served in order. Nothing is remembered
// of a client without items. While an item is the first of its client, every other client is served at most as much as the
// item costs, and one item more.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{queue: New[uint64](1000, 1<<40), waiting: make(map[string][]Item[uint64]), served: make(map[string]map[string]uint64)}
		t.Repeat(map[string]func(*rapid.T){"add": m.add, "serve": m.serve, "refuse": m.refuse, "filter": m.filter, "": m.compare})
	})
}

// model is a queue with what it should hold.
type model struct {
	queue   *Queue[uint64]
	waiting map[string][]Item[uint64]
	// served is the cost of what was served of the one client since the first item of the other became its first.
	served  map[string]map[string]uint64
	next    uint64
	largest uint64 // cost
}

var clients = []string{"a", "b", "c", "d"}

func (m *model) add(t *rapid.T) {
	client := rapid.SampledFrom(clients).Draw(t, "client")
	if len(m.waiting[client]) == 0 {
		m.served[client] = make(map[string]uint64)
	}
	m.next++
	item := Item[uint64]{m.next, rapid.IntRange(0, 1<<20).Draw(t, "bytes"), rapid.Uint64Range(1, 1<<20).Draw(t, "cost")}
	m.largest = max(m.largest, item.Cost)
	m.queue.Add(client, item)
	m.waiting[client] = append(m.waiting[client], item)
}

func (m *model) serve(t *rapid.T) {
	value, ok := m.queue.Next(always)
	if !ok {
		if m.queue.Len() > 0 {
			t.Fatal("nothing is served")
		}
		return
	}
	client := m.clientOf(t, value)
	cost := m.waiting[client][0].Cost
	m.waiting[client] = m.waiting[client][1:]
	m.served[client] = make(map[string]uint64)
	for other, waiting := range m.waiting {
		if other == client || len(waiting) == 0 {
			continue
		}
		m.served[other][client] += cost
		if got := m.served[other][client]; got > waiting[0].Cost+m.largest {
			t.Fatalf("client %s was served %d while an item of %s waits that costs %d", client, got, other, waiting[0].Cost)
		}
	}
}

// refuse looks at the next item and does not take it.
func (m *model) refuse(t *rapid.T) {
	if value, ok := m.queue.Next(func(uint64) bool { return false }); ok {
		t.Fatalf("item %d is served", value)
	}
}

func (m *model) filter(t *rapid.T) {
	odd := rapid.Uint64Range(0, 1).Draw(t, "odd")
	m.queue.Filter(func(value uint64) bool { return value%2 == odd })
	for _, client := range clients {
		m.waiting[client] = slices.DeleteFunc(m.waiting[client], func(i Item[uint64]) bool { return i.Value%2 != odd })
		m.served[client] = make(map[string]uint64)
	}
}

func (m *model) compare(t *rapid.T) {
	items, bytes, waiting := 0, 0, 0
	for _, list := range m.waiting {
		for _, item := range list {
			items, bytes = items+1, bytes+item.Bytes
		}
		waiting += min(1, len(list))
	}
	if m.queue.Len() != items || m.queue.Bytes() != bytes {
		t.Fatalf("%d items with %d bytes; %d with %d are there", m.queue.Len(), m.queue.Bytes(), items, bytes)
	}
	if len(m.queue.clients) != waiting || len(m.queue.byName) != waiting {
		t.Fatalf("%d clients are remembered, %d by name; %d wait", len(m.queue.clients), len(m.queue.byName), waiting)
	}
}

// clientOf returns the client of which an item is the first.
func (m *model) clientOf(t *rapid.T, value uint64) string {
	for client, waiting := range m.waiting {
		if len(waiting) > 0 && waiting[0].Value == value {
			return client
		}
	}
	t.Fatalf("item %d is served out of order", value)
	return ""
}
