package keyspace

import (
	"context"
	"fmt"
)

func (m *machine) everyRevision() {
	for rev := max(1, m.model.compact); rev <= m.model.lastRevision(); rev++ {
		req := RangeRequest{Key: []byte{0}, End: []byte{0}, Revision: rev}
		got, err := m.store.Range(context.Background(), req)
		want, wantErr := m.model.rangeKeys(req)
		m.same(fmt.Sprintf("revision %d", rev), rangeText(got, err), rangeText(want, wantErr))
	}
}

// noTraces checks the database after everything is swept and trimmed. It must contain the same records as if leases
// had ended and compaction had happened at once: no 'e' record, the events from the compact revision on, and only
// readable versions.
func (m *machine) noTraces() {
	if left := m.dump("e"); left != "" {
		m.Fatalf("left: %s", left)
	}
	m.onlyReadable()
	events := m.model.events
	for len(events) > 0 && events[0].KV.ModRevision < m.model.compact {
		events = events[1:]
	}
	it, err := m.db.NewIter(familyBounds(FamilyHistory))
	if err != nil {
		m.Fatalf("%v", err)
	}
	defer it.Close()
	var sub uint32
	var last Revision
	i := 0
	r := eventReader{it: it}
	valid, err := r.seek(max(0, m.model.compact))
	for ; valid; valid, err = r.step() {
		if i >= len(events) {
			m.Fatalf("more than %d events", i)
		}
		want := events[i]
		i++
		if sub++; want.KV.ModRevision != last {
			last, sub = want.KV.ModRevision, 0
		}
		got, wanted := r.current, historyEvent{last, want.Type == EventDelete, want.KV.Key}
		m.same("history", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", wanted))
		if len(r.rest) == 0 {
			m.same("place of a record", fmt.Sprintf("%q", it.Key()), fmt.Sprintf("%q", appendHistoryKey(nil, last, sub)))
		}
	}
	if err != nil || i != len(events) {
		m.Fatalf("%d events, then %v, want %d", i, err, len(events))
	}
	m.noOldRecords()
}

// noOldRecords checks that no record of events ends before the compact revision.
func (m *machine) noOldRecords() {
	it, err := m.db.NewIter(familyBounds(FamilyHistory))
	if err != nil {
		m.Fatalf("%v", err)
	}
	defer it.Close()
	if !it.First() {
		return
	}
	if rev, _, err := splitHistoryKey(it.Key()); err != nil || rev < m.model.compact {
		m.Fatalf("%q is left, %v", it.Key(), err)
	}
}

// onlyReadable checks that the database holds a version for each event after the compact revision and for each key
// that existed then, and no other version.
func (m *machine) onlyReadable() {
	want := make(map[string]bool)
	first := max(1, m.model.compact)
	for _, kv := range m.model.states[first] {
		want[string(appendVersionKey(nil, kv.Key, kv.ModRevision))] = true
	}
	for _, e := range m.model.events {
		if e.KV.ModRevision > first {
			want[string(appendVersionKey(nil, e.KV.Key, e.KV.ModRevision))] = true
		}
	}
	it, err := m.db.NewIter(familyBounds(FamilyVersions))
	if err != nil {
		m.Fatalf("%v", err)
	}
	defer it.Close()
	for valid := it.First(); valid; valid = it.Next() {
		if !want[string(it.Key())] {
			m.Fatalf("%q is left", it.Key())
		}
		delete(want, string(it.Key()))
	}
	for key := range want {
		m.Fatalf("%q is missing", key)
	}
}

func (m *machine) same(what, got, want string) {
	m.T.Helper()
	if got != want {
		m.Fatalf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

func kvsText(kvs []KV) string {
	var text string
	for _, kv := range kvs {
		text += kvText(kv) + "\n"
	}
	return text
}
