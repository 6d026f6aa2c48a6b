package keyspace

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestStoreMatchesModel makes random requests and compares every visible result with a model that keeps every
// revision.
func TestStoreMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{T: t, fixture: openFixture(t), model: newModel()}
		m.few = rapid.SampledFrom([]int{0, fewKeys}).Draw(t, "few")
		m.pack = rapid.SampledFrom([]int{1, 12, packBytes}).Draw(t, "pack")
		m.store.few, m.store.packBytes = m.few, m.pack
		m.fixture.t = t
		m.hub = NewHub(m.store)
		defer func() { m.db.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"batch":   m.batch,
			"batch2":  m.batch, // twice as likely
			"grant":   m.grantOne,
			"range":   m.rangeOnce,
			"txn":     m.txnOnce,
			"watch":   m.watch,
			"cancel":  m.cancel,
			"next":    m.next,
			"drain":   func(t *rapid.T) { m.T = t; m.drainAll() },
			"request": m.requestProgress,
			"reopen":  m.reopenAll,
			"replace": m.replaceAll,
		})
		m.T = t
		m.drainAll()
		m.everyRevision()
		m.write(func(w *Writer) { _, _ = w.Sweep(1 << 30) })
		m.everyRevision()
		for range 2 { // an unfinished pass may have started before
			m.write(func(w *Writer) { _, _ = w.Trim(1 << 30) })
		}
		m.everyRevision()
		m.noTraces()
	})
}

type machine struct {
	*rapid.T
	*fixture
	model   *model
	hub     *Hub
	streams []*watchedStream
}

// watchedStream is a stream with the responses that its watchers received.
type watchedStream struct {
	*Stream
	watches map[int64]*watchRecord
}

type watchRecord struct {
	req      WatchRequest
	from     int64
	events   []Event
	created  bool // the created response was received
	canceled bool
}

func (m *machine) Fatalf(format string, args ...any) { m.T.Helper(); m.T.Fatalf(format, args...) }

var (
	someKeys  = rapid.SampledFrom([]string{"a", "a\x00", "a\x00\x01", "a\xff", "b", "ba", "c", "\x00", "\xff"})
	someEnds  = rapid.SampledFrom([]string{"", "", "\x00", "b", "c", "a\x00\x01", "\xff"})
	someLease = rapid.Int64Range(1, 4)
)

func (m *machine) drawInterval() (key, end []byte) {
	return []byte(someKeys.Draw(m.T, "key")), []byte(someEnds.Draw(m.T, "end"))
}

func (m *machine) grantOne(t *rapid.T) {
	m.T = t
	if id := someLease.Draw(t, "lease"); !m.model.leases[id] {
		m.grant(id)
		m.model.leases[id] = true
	}
}

// batch executes some requests in one batch.
func (m *machine) batch(t *rapid.T) {
	m.T = t
	changes := m.requests()
	// Between Commit and Publish a stream may see the revision before the hub does.
	if rapid.Bool().Draw(t, "delay publishing") {
		m.watch(t)
		m.next(t)
	}
	m.hub.Publish(changes)
}

func (m *machine) requests() Changes {
	t := m.T
	return m.write(func(w *Writer) {
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			switch rapid.SampledFrom([]string{"put", "put", "put", "del", "group", "end", "sweep", "trim", "compact", "range", "txn", "txn"}).Draw(t, "request") {
			case "put":
				m.model.request(func(s map[string]KV, rev int64) { m.put(w, s, rev, m.drawPutRequest()) })
			case "del":
				m.model.request(func(s map[string]KV, rev int64) { m.del(w, s, rev) })
			case "group":
				m.group(w)
			case "end":
				m.endOne(w)
			case "sweep":
				_, _ = w.Sweep(rapid.IntRange(0, 3).Draw(t, "keys"))
			case "trim":
				_, _ = w.Trim(rapid.IntRange(0, 3).Draw(t, "keys"))
			case "compact":
				m.compactOnce(w)
			case "range":
				m.rangeInBatch(w)
			case "txn":
				m.txnInBatch(w)
			}
		}
	})
}

func (m *machine) drawPutRequest() PutRequest {
	return PutRequest{
		Key:         []byte(rapid.SampledFrom([]string{"a", "a\x00", "a\x00\x01", "b", "c"}).Draw(m.T, "key")),
		Value:       []byte(rapid.SampledFrom([]string{"", "1", "2", "long long long"}).Draw(m.T, "value")),
		Lease:       rapid.SampledFrom([]int64{0, 1, 1, 2, 3, 4}).Draw(m.T, "lease"),
		PrevKV:      rapid.Bool().Draw(m.T, "prev"),
		IgnoreValue: rapid.IntRange(0, 4).Draw(m.T, "ignore value") == 0,
		IgnoreLease: rapid.IntRange(0, 4).Draw(m.T, "ignore lease") == 0,
	}
}

func (m *machine) put(w *Writer, state map[string]KV, rev int64, req PutRequest) {
	prev, wantErr := m.model.put(state, rev, req)
	got, err := w.Put(req)
	if !errors.Is(err, wantErr) {
		m.Fatalf("put %q: %v, want %v", req.Key, err, wantErr)
	}
	if err != nil {
		return
	}
	if !req.PrevKV {
		prev = nil
	}
	m.same("put", fmt.Sprint(got.Revision)+prevText(got.Prev), fmt.Sprint(rev)+prevText(prev))
}

func (m *machine) del(w *Writer, state map[string]KV, rev int64) {
	key, end := m.drawInterval()
	events := len(m.model.events)
	prev := m.model.remove(state, rev, func(kv KV) bool { return within(kv.Key, key, end) })
	got, err := w.DeleteRange(DeleteRequest{Key: key, End: end, PrevKV: true})
	if err != nil {
		m.Fatalf("delete: %v", err)
	}
	m.same("delete", kvsText(got.Prev), kvsText(prev))
	if len(m.model.events) > events && got.Revision != rev {
		m.Fatalf("deleted at %d, want %d", got.Revision, rev)
	}
}

// group puts different keys in one request, some of them after deleting others.
func (m *machine) group(w *Writer) {
	m.model.request(func(state map[string]KV, rev int64) {
		err := w.Group(func() error {
			if rapid.Bool().Draw(m.T, "delete") {
				key := []byte(rapid.SampledFrom([]string{"x", "y"}).Draw(m.T, "key"))
				m.model.remove(state, rev, func(kv KV) bool { return within(kv.Key, key, nil) })
				_, err := w.DeleteRange(DeleteRequest{Key: key})
				return err
			}
			for _, key := range []string{"x", "y", "a"} {
				if rapid.Bool().Draw(m.T, "put "+key) {
					m.put(w, state, rev, PutRequest{Key: []byte(key), Value: []byte(key)})
				}
			}
			return nil
		})
		if err != nil {
			m.Fatalf("group: %v", err)
		}
	})
}

func (m *machine) endOne(w *Writer) {
	id := someLease.Draw(m.T, "lease")
	if !m.model.leases[id] {
		return
	}
	delete(m.model.leases, id)
	m.model.request(func(state map[string]KV, rev int64) {
		m.model.remove(state, rev, func(kv KV) bool { return kv.Lease == id })
	})
	if got := m.fixture.end(w, id); got != m.model.lastRevision() {
		m.Fatalf("lease ended at %d, want %d", got, m.model.lastRevision())
	}
}

func (m *machine) compactOnce(w *Writer) {
	rev := rapid.Int64Range(max(1, m.model.lastRevision()-20), m.model.lastRevision()).Draw(m.T, "compact")
	if rapid.IntRange(0, 5).Draw(m.T, "really") > 0 {
		return
	}
	err := w.Compact(rev)
	if refused := rev <= m.model.compact; refused != errors.Is(err, ErrCompacted) {
		m.Fatalf("compact to %d after %d: %v", rev, m.model.compact, err)
	}
	m.model.compact = max(m.model.compact, rev)
}

func (m *machine) drawRangeRequest() RangeRequest {
	t := m.T
	key, end := m.drawInterval()
	req := RangeRequest{
		Key: key, End: end,
		Limit:      rapid.Int64Range(-1, 4).Draw(t, "limit"),
		Revision:   rapid.Int64Range(0, m.model.lastRevision()+1).Draw(t, "revision"),
		SortOrder:  SortOrder(rapid.IntRange(0, 2).Draw(t, "order")),
		SortTarget: SortTarget(rapid.IntRange(0, 4).Draw(t, "by")),
		KeysOnly:   rapid.Bool().Draw(t, "keys only"),
		CountOnly:  rapid.IntRange(0, 5).Draw(t, "count only") == 0,
	}
	for _, bound := range []*int64{
		&req.MinModRevision, &req.MaxModRevision, &req.MinCreateRevision, &req.MaxCreateRevision,
	} {
		if rapid.IntRange(0, 4).Draw(t, "bounded") == 0 {
			*bound = rapid.Int64Range(0, m.model.lastRevision()+1).Draw(t, "bound")
		}
	}
	return req
}

func (m *machine) rangeOnce(t *rapid.T) {
	m.T = t
	req := m.drawRangeRequest()
	got, err := m.store.Range(context.Background(), req)
	want, wantErr := m.model.rangeKeys(req)
	m.same(fmt.Sprintf("range %+v", req), rangeText(got, err), rangeText(want, wantErr))
}

func (m *machine) rangeInBatch(w *Writer) {
	req := m.drawRangeRequest()
	got, err := w.Range(req)
	want, wantErr := m.model.rangeKeys(req)
	m.same(fmt.Sprintf("range in a batch %+v", req), rangeText(got, err), rangeText(want, wantErr))
}

func (m *machine) watch(t *rapid.T) {
	m.T = t
	if len(m.streams) < 2 {
		limits := StreamLimits{Events: rapid.IntRange(1, 6).Draw(t, "queue"), FragmentBytes: 300}
		m.streams = append(m.streams, &watchedStream{m.hub.NewStream(limits), make(map[int64]*watchRecord)})
	}
	st := m.streams[rapid.IntRange(0, len(m.streams)-1).Draw(t, "stream")]
	key, end := m.drawInterval()
	req := WatchRequest{
		Key: key, End: end, PrevKV: rapid.Bool().Draw(t, "prev"),
		StartRevision: rapid.Int64Range(0, m.model.lastRevision()+3).Draw(t, "start"),
		NoPut:         rapid.IntRange(0, 4).Draw(t, "no put") == 0,
		NoDelete:      rapid.IntRange(0, 4).Draw(t, "no delete") == 0,
		Fragment:      rapid.Bool().Draw(t, "fragment"),
	}
	id, err := st.Watch(req)
	if errors.Is(err, ErrEmptyInterval) {
		return
	}
	if err != nil {
		m.Fatalf("watch: %v", err)
	}
	from := req.StartRevision
	if from == 0 {
		from = m.model.lastRevision() + 1
	}
	st.watches[id] = &watchRecord{req: req, from: from}
}

func (m *machine) cancel(t *rapid.T) {
	m.T = t
	if len(m.streams) == 0 {
		return
	}
	st := m.streams[0]
	if id := rapid.Int64Range(0, 20).Draw(t, "id"); st.Cancel(id) {
		st.watches[id].canceled = true
	}
}

func (m *machine) requestProgress(t *rapid.T) {
	m.T = t
	if len(m.streams) > 0 {
		m.streams[0].RequestProgress()
	}
}

// next takes one response from each stream.
func (m *machine) next(t *rapid.T) {
	m.T = t
	for _, st := range m.streams {
		m.take(st)
	}
}

func (m *machine) take(st *watchedStream) {
	r, err := nextNow(st.Stream)
	if err != nil {
		m.Fatalf("next: %v", err)
	}
	if r == nil || r.Created && r.Canceled {
		return
	}
	if r.WatchID == NoWatch {
		m.promised(st, r.Revision)
		return
	}
	w := st.watches[r.WatchID]
	w.created = w.created || r.Created
	if w.events = append(w.events, r.Events...); r.Canceled {
		m.canceled(w, r)
	}
}

// promised checks that all events up to the revision of a progress response were received.
func (m *machine) promised(st *watchedStream, rev int64) {
	for id, w := range st.watches {
		want := m.model.watched(w.req, w.from)
		for len(want) > 0 && want[len(want)-1].KV.ModRevision > rev {
			want = want[:len(want)-1]
		}
		if w.created && !w.canceled && len(w.events) < len(want) {
			m.Fatalf("progress %d, but watcher %d was watchRecord %d of %d events", rev, id, len(w.events), len(want))
		}
	}
}

// canceled checks a watcher that was cancelled by compaction: it had received all events before, and its next ones
// are below the compact revision.
func (m *machine) canceled(w *watchRecord, r *WatchResponse) {
	want := m.model.watched(w.req, w.from)
	m.prefix(w, want)
	if r.CompactRevision != 0 {
		next := w.from
		if len(w.events) > 0 {
			next = max(next, w.events[len(w.events)-1].KV.ModRevision+1)
		}
		if next >= r.CompactRevision || r.CompactRevision > m.model.compact {
			m.Fatalf("compacted to %d, but %d was to come; compact revision %d", r.CompactRevision, next, m.model.compact)
		}
	}
	w.canceled = true
}

// prefix checks that the received events are the first of the expected ones.
func (m *machine) prefix(w *watchRecord, want []Event) {
	if len(w.events) > len(want) {
		m.Fatalf("watchRecord %d events, there were %d", len(w.events), len(want))
	}
	for i, e := range w.events {
		expected := want[i]
		compacted := w.req.PrevKV && e.PrevKV == nil && expected.PrevKV != nil && e.KV.ModRevision-1 < m.model.compact
		if !w.req.PrevKV || compacted {
			expected.PrevKV = nil
		}
		m.same("event", eventText(e), eventText(expected))
	}
}

// drainAll reads all streams to their end and checks that no event is missing.
func (m *machine) drainAll() {
	for _, st := range m.streams {
		for !st.idle() {
			m.take(st)
		}
		for id, w := range st.watches {
			want := m.model.watched(w.req, w.from)
			m.prefix(w, want)
			if !w.canceled && len(w.events) != len(want) {
				m.Fatalf("watcher %d was watchRecord %d events of %d", id, len(w.events), len(want))
			}
		}
	}
}

func (m *machine) reopenAll(t *rapid.T) {
	m.T = t
	m.drainAll()
	for _, st := range m.streams {
		st.Close()
	}
	m.streams = nil
	bindings := m.leases.String()
	m.reopen()
	m.same("bindings", m.leases.String(), bindings)
	m.hub = NewHub(m.store)
}
