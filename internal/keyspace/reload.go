package keyspace

// Suspend announces that the caller is about to replace everything in the database by a later state of the same
// keyspace. Until Reload nothing can be read or written. Reads fail with ErrReplaced, including those under way,
// because their iterators may come to see the new state. Watchers wait. Revision and CompactRevision keep their
// values.
func (s *Store) Suspend() {
	if s.suspended() {
		panic("keyspace: suspended twice")
	}
	s.epoch++
	s.publish()
}

// suspended reports whether the state is being replaced.
func (s *Store) suspended() bool { return s.epoch%2 == 1 }

// Reload loads the state that replaced the one before Suspend, so that holders of the Store can continue with it. The
// caller must call Hub.Reload next. After an error the Store stays suspended.
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

// ReadAlongside runs read, which reads data that the caller keeps in the same database and replaces together with the
// keyspace. It returns ErrReplaced if such a replacement was under way during read; what read has read may then mix
// two states.
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

// toRead returns the published state, or ErrReplaced while there is none to read.
func (s *Store) toRead() (*published, error) {
	p := s.published.Load()
	if p.epoch%2 == 1 {
		return nil, ErrReplaced
	}
	return p, nil
}

// canReadAgain reports whether a read that failed with ErrReplaced can be retried at once.
func (s *Store) canReadAgain() bool {
	_, err := s.toRead()
	return err == nil
}

// replacedSince reports whether reads since p was published may mix two states. The caller must call it after
// reading: if Suspend was not called by then, nothing was replaced.
func (s *Store) replacedSince(p *published) bool { return s.published.Load().epoch != p.epoch }

// Reload makes the watchers continue with the new state. The caller calls it after Store.Reload, and before it
// publishes changes of the new state. Watchers read the revisions between the two states from the new history, or are
// cancelled if these are compacted.
func (h *Hub) Reload() {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := h.s.Revision()
	for st := range h.streams { // order: each stream is handled by itself
		st.reload(current)
	}
	h.revision = current
}

// reload marks as lagging the live watchers that have revisions to catch up on. Hub.mu is held.
func (st *Stream) reload(current Revision) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, id := range sortedIDs(st.watchers) {
		w := st.watchers[id]
		if !w.live {
			continue
		}
		// Its events up to the hub's revision were delivered or are queued.
		if w.next = max(w.next, st.hub.revision+1); w.next <= current {
			w.live = false
			st.lagging = append(st.lagging, w)
		}
	}
	st.signal()
}
