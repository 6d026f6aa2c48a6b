package keyspace

// Suspend is called before all that is in the database is replaced at once by
// a later state of the same key space. From then on nothing can be read or
// written until Reload: reads fail with ErrReplaced, also those under way,
// whose iterators may come to see the new state in the middle. Watchers wait.
// Revision and CompactRevision stay as they were.
func (s *Store) Suspend() {
	if s.suspended() {
		panic("keyspace: suspended twice")
	}
	s.epoch++
	s.publish()
}

// suspended reports whether the state is being replaced.
func (s *Store) suspended() bool { return s.epoch%2 == 1 }

// Reload reads the state that has replaced the one from before Suspend, and
// lets all who hold the Store go on with it. The next is Hub.Reload. After an
// error the Store stays suspended for good.
func (s *Store) Reload(leases Leases) error {
	if !s.suspended() {
		panic("keyspace: reloaded without having been suspended")
	}
	fresh := &Store{db: s.db, leases: leases, few: s.few, packBytes: s.packBytes, byGeneration: make(map[uint64]*ending)}
	if err := fresh.load(); err != nil {
		return err
	}
	if fresh.revision < s.revision || fresh.compact < s.compact {
		return corrupt(metaRevision, "replaced by an earlier state: revision %d after %d, compact revision %d after %d",
			fresh.revision, s.revision, fresh.compact, s.compact)
	}
	s.leases = leases
	s.revision, s.compact = fresh.revision, fresh.compact
	s.ends, s.swept, s.byGeneration = fresh.ends, fresh.swept, fresh.byGeneration
	s.recents, s.trimming = recents{}, fresh.trimming
	s.epoch++
	s.publish()
	return nil
}

// ReadAlongside is for those who read what is kept beside the key space in the same
// database, and is replaced together with it. If that happened while read was
// under way, or is about to, it returns ErrReplaced, and what was read may be
// of two states.
func (s *Store) ReadAlongside(read func() error) error {
	p, err := s.toRead()
	if err != nil {
		return err
	}
	if err = read(); s.replacedSince(p) {
		return ErrReplaced
	}
	return err
}

// toRead returns what a reader goes by, unless there is nothing to be read.
func (s *Store) toRead() (*published, error) {
	p := s.published.Load()
	if p.epoch%2 == 1 {
		return nil, ErrReplaced
	}
	return p, nil
}

// readableAgain reports whether a read that met with ErrReplaced may be tried
// again at once.
func (s *Store) readableAgain() bool {
	_, err := s.toRead()
	return err == nil
}

// replacedSince reports whether what was read since p was published may be of
// two states. It is asked after the reading: if Suspend was not called by now,
// nothing has been replaced before.
func (s *Store) replacedSince(p *published) bool { return s.published.Load().epoch != p.epoch }

// Reload is called after Store.Reload, and before changes of the new state are
// published. Watchers read from the history of the new state what happened
// between the two, or are cancelled if that is compacted.
func (h *Hub) Reload() {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.s.Revision()
	for st := range h.streams { // order: each by itself
		st.reload(current)
	}
	h.revision = current
}

// reload lets the live watchers that have revisions to catch up with lag.
// Hub.mu is held.
func (st *Stream) reload(current Revision) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, id := range sortedIDs(st.watchers) {
		w := st.watchers[id]
		if !w.live {
			continue
		}
		// What it was to be told up to the hub's revision it was, or is in the queue.
		if w.next = max(w.next, st.hub.revision+1); w.next <= current {
			w.live = false
			st.lagging = append(st.lagging, w)
		}
	}
	st.signal()
}
