package keyspace

import (
	"maps"
	"slices"
)

// WatchLag is how far watchers are behind.
type WatchLag struct {
	Streams  int
	Watchers int
	Lagging  int   // watchers that read history, because they began in the past or their stream's queue was full
	Queued   int   // events queued in streams
	Furthest int64 // revisions that the watcher furthest behind has yet to read
}

// Lag returns how far the watchers are behind. Any goroutine may call it. It blocks the publishing of changes only
// while it lists the streams.
func (h *Hub) Lag() WatchLag {
	h.mu.Lock()
	lag := WatchLag{Streams: len(h.streams), Watchers: h.count}
	streams := slices.Collect(maps.Keys(h.streams)) // order: their lags are summed
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
