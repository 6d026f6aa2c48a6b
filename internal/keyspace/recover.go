package keyspace

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// loadEnds loads the pending endings from the database.
func (s *Store) loadEnds() (err error) {
	it, err := s.db.NewIter(familyBounds(FamilyEnded))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	records := make(map[uint64]ended)
	for valid := it.First(); valid; valid = it.Next() {
		e, err := s.loadEnd(it)
		if err != nil {
			return err
		}
		records[e.generation] = e.ended
		s.byGeneration[e.generation] = &ending{generation: e.generation, lease: e.lease, revision: e.revision}
	}
	if err := it.Error(); err != nil || len(records) == 0 {
		return err
	}
	if err := s.loadEndedKeys(); err != nil {
		return err
	}
	return s.queueEnds(records)
}

type generationEnd struct {
	generation uint64
	ended
}

func (s *Store) loadEnd(it *pebble.Iterator) (generationEnd, error) {
	generation, err := splitEndedKey(it.Key())
	if err != nil {
		return generationEnd{}, err
	}
	rec, err := it.ValueAndErr()
	if err != nil {
		return generationEnd{}, err
	}
	e, err := decodeEnded(it.Key(), rec)
	if err == nil && e.revision > s.revision {
		err = corrupt(it.Key(), "ended at revision %d, current is %d", e.revision, s.revision)
	}
	return generationEnd{generation, e}, err
}

// queueEnds sorts the endings and checks them against their records. A key list of a different length would change
// the order numbers of events since the last start.
func (s *Store) queueEnds(records map[uint64]ended) error {
	for _, e := range s.byGeneration {
		s.ends = append(s.ends, e)
	}
	slices.SortFunc(s.ends, func(a, b *ending) int { return cmp.Compare(a.revision, b.revision) })
	for i, e := range s.ends {
		rec := records[e.generation]
		key := appendEndedKey(nil, e.generation)
		if len(e.keys) != rec.keys {
			return corrupt(key, "%d keys found, %d expected", len(e.keys), rec.keys)
		}
		if i == 0 {
			s.swept = rec.swept
		} else if rec.swept != 0 || e.revision == s.ends[i-1].revision {
			return corrupt(key, "out of its turn")
		}
	}
	return nil
}

// loadEndedKeys finds the keys of all endings in one pass over the versions. A key belongs to an ending if its newest
// version from before the ending carries that generation. This holds whether its tombstone is written yet or not, so
// the list is the one that EndLease received.
func (s *Store) loadEndedKeys() (err error) {
	it, err := s.db.NewIter(familyBounds(FamilyVersions))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var current []byte // prefix of the current key
	var newer Revision // of the next newer version of the same key; 0: none
	for valid := it.First(); valid; valid = it.Next() {
		prefix, rev, err := splitVersionKey(it.Key())
		if err != nil {
			return err
		}
		if string(prefix) != string(current) {
			current, newer = append(current[:0], prefix...), 0
		}
		v, err := versionAt(it)
		if err != nil {
			return err
		}
		if e := s.byGeneration[v.generation]; e != nil && (newer == 0 || newer >= e.revision) {
			key, err := userKey(prefix)
			if err != nil {
				return err
			}
			e.keys = append(e.keys, string(key))
		}
		newer = rev
	}
	return it.Error()
}

func familyBounds(family byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{family}, UpperBound: []byte{family + 1}}
}
