package memory

import (
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// watcher is one call of Watch, for the names that begin with a prefix.
type watcher struct {
	prefix string
	events []backend.Event
	behind bool          // events were dropped: it has to get the present state of all names
	wake   chan struct{} // has room for one
}

// notify queues an event for all watchers.
func (s *Store) notify(kind backend.EventKind, r *record, why backend.Reason, now clock.Instant) {
	for w := range s.watchers {
		if !strings.HasPrefix(r.name, w.prefix) {
			continue
		}
		if len(w.events) >= maxEvents {
			w.events, w.behind = nil, true
		}
		if !w.behind {
			w.events = append(w.events, backend.Event{Kind: kind, Info: r.info(now), Why: why})
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// takeEvents returns the events that w has to report now, and the store's next end.
func (s *Store) takeEvents(w *watcher) ([]backend.Event, clock.Instant, clock.Instant) {
	now := s.lock()
	defer s.mu.Unlock()
	events := w.events
	w.events = nil
	if w.behind {
		w.behind, events = false, nil
		for _, r := range s.sorted(w.prefix, "") {
			events = append(events, backend.Event{Kind: backend.Resync, Info: r.info(now)})
		}
	}
	return events, now, s.soonest
}

func (s *Store) addWatcher(prefix string) *watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watcher{prefix: prefix, behind: true, wake: make(chan struct{}, 1)}
	s.watchers[w] = struct{}{}
	return w
}

func (s *Store) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}
