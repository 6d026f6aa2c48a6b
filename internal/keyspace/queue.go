package keyspace

import (
	"maps"
	"slices"
)

// entry is a response in the queue of a stream. All its events have the same revision.
type entry struct {
	w        *watcher // nil if the response belongs to no existing watcher
	response WatchResponse
	bytes    int  // size of the events
	progress bool // the response notifies of progress
}

// queue is a queue of entries.
type queue struct {
	entries []entry
	head    int // index of the first entry; those before it are popped; ≤ len(entries)

	events, bytes int // of the entries from head on
}

func (q *queue) empty() bool { return q.head == len(q.entries) }

func (q *queue) front() *entry { return &q.entries[q.head] }

func (q *queue) push(e entry) {
	if q.head > 64 && q.head > len(q.entries)/2 {
		n := copy(q.entries, q.entries[q.head:])
		clear(q.entries[n:])
		q.entries, q.head = q.entries[:n], 0
	}
	q.entries = append(q.entries, e)
	q.events += len(e.response.Events)
	q.bytes += e.bytes
}

func (q *queue) pop() entry {
	e := q.entries[q.head]
	q.entries[q.head] = entry{}
	if q.head++; q.empty() {
		q.entries, q.head = q.entries[:0], 0
	}
	q.events -= len(e.response.Events)
	q.bytes -= e.bytes
	return e
}

func sortedIDs(watchers map[int64]*watcher) []int64 {
	return slices.Sorted(maps.Keys(watchers))
}
