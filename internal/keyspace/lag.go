package keyspace

import (
	"maps"
	"slices"
)

// WatchLag says how far watchers are behind.
type WatchLag struct {
	Streams  int
	Watchers int
	Lagging  int   // watchers that read history because their stream had no room, or because they began in the past
	Queued   int   // events that wait in streams to be handed out
	Furthest int64 // revisions that the watcher furthest behind has yet to read
}

// Lag adds up how far the watchers are behind. It may be called from any goroutine; it holds up the
// publishing of changes only while it lists the streams.
func (h *Hub) Lag() WatchLag {
	h.mu.Lock()
	lag := WatchLag{Streams: len(h.streams), Watchers: h.count}
	streams := slices.Collect(maps.Keys(h.streams)) // order: they are only added up
	h.mu.Unlock()
	for _, st := range streams {
		st.mu.Lock()
		lag.Queued += st.queue.events
		lag.Lagging += len(st.lagging)
		for _, w := range st.lagging {
			lag.Furthest = max(lag.Furthest, h.s.Revision()+1-w.next)
		}
		st.mu.Unlock()
	}
	return lag
}
