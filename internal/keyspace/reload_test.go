package keyspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// copyAll makes one database's contents equal to another's.
func copyAll(t tb, from, to *pebble.DB) {
	t.Helper()
	it, err := from.NewIter(nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	batch := to.NewBatch()
	err = batch.DeleteRange([]byte{0}, []byte{0xff}, nil)
	for it.First(); it.Valid() && err == nil; it.Next() {
		err = batch.Set(it.Key(), it.Value(), nil)
	}
	if err = errors.Join(err, it.Error(), it.Close()); err == nil {
		err = batch.Commit(pebble.NoSync)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// away opens a store on a copy of the database.
func (h *fixture) away() *fixture {
	h.t.Helper()
	other := &fixture{t: h.t, fs: vfs.NewMem(), leases: h.leases, few: h.few, pack: h.pack}
	db, err := pebble.Open("db", &pebble.Options{FS: other.fs, Logger: quiet{}})
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	copyAll(h.t, h.db, db)
	other.db = db
	if other.store, err = Open(db, h.leases); err != nil {
		h.t.Fatalf("%v", err)
	}
	other.store.few, other.store.packBytes = h.few, h.pack
	return other
}

// replaceAll replaces the database by a copy in which more requests were executed.
func (m *machine) replaceAll(t *rapid.T) {
	m.T = t
	here, there := *m.fixture, m.fixture.away()
	here.store.Suspend()
	if rapid.Bool().Draw(t, "watch while suspended") {
		m.watch(t)
	}
	if _, err := here.store.Range(context.Background(), RangeRequest{Key: []byte("a")}); !errors.Is(err, ErrReplaced) {
		m.Fatalf("read while suspended: %v", err)
	}
	m.db, m.store = there.db, there.store
	for range rapid.IntRange(0, 3).Draw(t, "batches elsewhere") {
		m.requests()
	}
	m.db, m.store = here.db, here.store
	m.suspendedNext()
	copyAll(m, there.db, here.db)
	if err := there.db.Close(); err != nil {
		m.Fatalf("%v", err)
	}
	m.suspendedNext()
	if err := m.store.Reload(m.leases); err != nil {
		m.Fatalf("reload: %v", err)
	}
	// Between Commit and Publish a stream may see the revision before the hub does.
	if rapid.Bool().Draw(t, "delay the hub") {
		m.watch(t)
		m.next(t)
	}
	m.hub.Reload()
}

// suspendedNext takes the responses that streams can return without reading.
func (m *machine) suspendedNext() {
	for _, st := range m.streams {
		if len(st.ready) == 0 && !st.idle() {
			if err := st.advance(context.Background()); err != nil && !errors.Is(err, ErrReplaced) {
				m.Fatalf("advance: %v", err)
			}
		}
		if len(st.ready) > 0 {
			m.take(st)
		}
	}
}

// Readers on other goroutines see the old state or the new one, or get ErrReplaced, while the database is replaced by
// operations that also affect open snapshots.
func TestReadDuringReplacementSeesOneState(t *testing.T) {
	h := newFixture(t)
	if err := h.db.RatchetFormatMajorVersion(pebble.FormatNewest); err != nil {
		t.Fatal(err)
	}
	const keys, rounds = 200, 6
	fill := func(h *fixture, round int) {
		for i := range keys {
			h.write(func(w *Writer) {
				if _, err := w.Put(PutRequest{Key: fmt.Appendf(nil, "k%03d", i), Value: fmt.Append(nil, round)}); err != nil {
					t.Error(err)
				}
			})
		}
		h.write(func(w *Writer) { // nothing of earlier rounds can be read
			if err := w.Compact(w.s.revision); err != nil {
				t.Error(err)
			}
		})
	}
	fill(h, 0)
	ctx, stop := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	var mu sync.Mutex
	seen := make(map[string]int)
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				what, err := readAll(h.store, keys)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				seen[what]++
				mu.Unlock()
			}
		})
	}
	for round := 1; round <= rounds; round++ {
		other := h.away()
		fill(other, round)
		h.store.Suspend()
		everything := pebble.KeyRange{Start: []byte{0}, End: []byte{0xff}}
		if err := errors.Join(h.db.Flush(), h.db.Excise(context.Background(), everything)); err != nil {
			t.Fatal(err)
		}
		copyAll(t, other.db, h.db)
		if err := errors.Join(h.store.Reload(h.leases), other.db.Close()); err != nil {
			t.Fatal(err)
		}
		for range 3 { // give the readers time to read it
			if _, err := readAll(h.store, keys); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	readers.Wait()
	t.Logf("seen: %v", seen)
}

// readAll reads all keys, which must have one value, and returns it.
func readAll(s *Store, keys int) (string, error) {
	res, err := s.Range(context.Background(), RangeRequest{Key: []byte{0}, End: []byte{0}})
	if errors.Is(err, ErrReplaced) {
		return "replaced", nil
	}
	if err != nil || len(res.KVs) != keys {
		return "", fmt.Errorf("%d keys were read, %v", len(res.KVs), err)
	}
	for _, kv := range res.KVs {
		if string(kv.Value) != string(res.KVs[0].Value) {
			return "", fmt.Errorf("%s is %s and %s is %s", res.KVs[0].Key, res.KVs[0].Value, kv.Key, kv.Value)
		}
	}
	return string(res.KVs[0].Value), nil
}

// A read that began before the replacement and ends after it fails.
func TestReadAcrossReplacementFails(t *testing.T) {
	h := newFixture(t)
	h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("k"), Value: []byte("old")}) })
	for name, read := range map[string]func(context.Context) error{
		"range": func(ctx context.Context) error {
			_, err := h.store.Range(ctx, RangeRequest{Key: []byte{0}, End: []byte{0}})
			return err
		},
		"hash":      func(ctx context.Context) error { _, err := h.store.Hash(ctx); return err },
		"hash keys": func(ctx context.Context) error { _, err := h.store.HashKeys(ctx, 0); return err },
		"keys":      func(context.Context) error { return h.store.Keys(func(KV) bool { return true }) },
		"alongside": func(context.Context) error { return h.store.ReadAlongside(func() error { return nil }) },
		"history":   func(ctx context.Context) error { return readHistory(ctx, h.store) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := read(context.Background()); err != nil {
				t.Fatalf("before: %v", err)
			}
			h.store.Suspend()
			if err := read(context.Background()); !errors.Is(err, ErrReplaced) {
				t.Errorf("suspended: %v", err)
			}
			if err := h.store.Reload(h.leases); err != nil {
				t.Fatal(err)
			}
			if err := read(context.Background()); err != nil {
				t.Errorf("after: %v", err)
			}
		})
	}
	err := h.store.ReadAlongside(func() error { h.store.Suspend(); return h.store.Reload(h.leases) })
	if !errors.Is(err, ErrReplaced) {
		t.Errorf("replaced while alongside data was read: %v", err)
	}
	p, err := h.store.toRead()
	if err != nil || h.store.replacedSince(p) {
		t.Fatalf("nothing was replaced: %v", err)
	}
	h.store.Suspend()
	if !h.store.replacedSince(p) {
		t.Error("what is being read may be of two states, and is believed")
	}
	if err := h.store.Reload(h.leases); err != nil {
		t.Fatal(err)
	}
	if !h.store.replacedSince(p) {
		t.Error("what was read may be of two states, and is believed")
	}
}

func readHistory(ctx context.Context, s *Store) error {
	_, err := s.history(ctx, spanOf([]byte("k"), nil), 1, func(EventType) bool { return true }, portion{1, 1, 1})
	return err
}

// Only a later state may replace another, and nothing is written meanwhile.
func TestReloadRefusesEarlierState(t *testing.T) {
	h := newFixture(t)
	h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("k")}) })
	earlier := h.away()
	defer earlier.db.Close()
	h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("k")}) })
	h.store.Suspend()
	batch := h.db.NewIndexedBatch()
	if _, err := h.store.Begin(batch).Put(PutRequest{Key: []byte("k")}); !errors.Is(err, ErrMisuse) {
		t.Errorf("put while suspended: %v", err)
	}
	if err := batch.Close(); err != nil {
		t.Fatal(err)
	}
	copyAll(t, earlier.db, h.db)
	if err := h.store.Reload(h.leases); err == nil || !strings.Contains(err.Error(), "replaced by an earlier state") {
		t.Errorf("reload: %v", err)
	}
	if _, err := h.store.Range(context.Background(), RangeRequest{Key: []byte("k")}); !errors.Is(err, ErrReplaced) {
		t.Errorf("read after a failed reload: %v", err)
	}
}

// waited is a context that reports when a goroutine begins to wait for its end.
type waited struct {
	context.Context
	once  *sync.Once
	begun chan struct{}
}

func (w waited) Done() <-chan struct{} {
	w.once.Do(func() { close(w.begun) })
	return w.Context.Done()
}

// Next waits between Suspend and Reload.
func TestNextWaitsUntilReload(t *testing.T) {
	h := newFixture(t)
	hub := NewHub(h.store)
	h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("k"), Value: []byte("v")}) })
	st := hub.NewStream(StreamLimits{})
	defer st.Close()
	if _, err := st.Watch(WatchRequest{Key: []byte("k"), StartRevision: 1}); err != nil {
		t.Fatal(err)
	}
	if r, err := st.Next(context.Background()); err != nil || !r.Created {
		t.Fatalf("created: %+v, %v", r, err)
	}
	h.store.Suspend()
	ctx := waited{context.Background(), new(sync.Once), make(chan struct{})}
	type next struct {
		r   WatchResponse
		err error
	}
	result := make(chan next, 1)
	go func() {
		r, err := st.Next(ctx)
		result <- next{r, err}
	}()
	select {
	case <-ctx.begun:
	case got := <-result:
		t.Fatalf("it does not wait: %+v", got)
	}
	if err := h.store.Reload(h.leases); err != nil {
		t.Fatal(err)
	}
	hub.Reload()
	if got := <-result; got.err != nil || len(got.r.Events) != 1 {
		t.Errorf("watchRecord: %+v", got)
	}
}

// A watcher that had received everything up to the replacement is not cancelled because of earlier compacted
// revisions.
func TestUpToDateWatcherSurvivesReplacement(t *testing.T) {
	h := newFixture(t)
	put := func(h *fixture, key string) {
		h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte(key)}) })
	}
	for range 3 {
		put(h, "other")
	}
	hub := NewHub(h.store)
	st := hub.NewStream(StreamLimits{})
	defer st.Close()
	for _, from := range []int64{1, 0} { // 0: from now on
		if _, err := st.Watch(WatchRequest{Key: []byte("k"), StartRevision: from}); err != nil {
			t.Fatal(err)
		}
	}
	for !st.idle() {
		if _, err := nextNow(st); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		put(h, "other")
		hub.Publish(Changes{{Revision: h.store.Revision()}})
	}
	other := h.away()
	put(other, "k")
	other.write(func(w *Writer) {
		if err := w.Compact(other.store.Revision()); err != nil {
			t.Error(err)
		}
	})
	h.store.Suspend()
	copyAll(t, other.db, h.db)
	if err := errors.Join(other.db.Close(), h.store.Reload(h.leases)); err != nil {
		t.Fatal(err)
	}
	hub.Reload()
	watchRecord := 0
	for !st.idle() {
		r, err := nextNow(st)
		if err != nil || r != nil && (r.Canceled || len(r.Events) != 1) {
			t.Fatalf("watchRecord: %+v, %v", r, err)
		}
		if r != nil {
			watchRecord++
		}
	}
	if watchRecord != 2 {
		t.Errorf("%d watchers were watchRecord of the put", watchRecord)
	}
}

// Sweep and Trim continue from the new state's own progress.
func TestSweepAndTrimContinueInNewState(t *testing.T) {
	h := newFixture(t)
	h.store.few = 0
	puts := func(h *fixture, lease int64, keys ...string) {
		h.write(func(w *Writer) {
			for _, key := range keys {
				if _, err := w.Put(PutRequest{Key: []byte(key), Lease: lease}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	tidy := func(h *fixture, keys int) {
		h.write(func(w *Writer) { _, _ = w.Sweep(keys) })
		h.write(func(w *Writer) { _, _ = w.Trim(keys) })
	}
	compact := func(h *fixture) {
		h.write(func(w *Writer) {
			if err := w.Compact(w.s.revision); err != nil {
				t.Error(err)
			}
		})
	}
	for round := range 3 {
		puts(h, 0, "a", "b", "c", "d")
		if round == 1 {
			compact(h)
			tidy(h, 2) // a pass of Trim is under way
		}
	}
	h.grant(1)
	h.grant(2)
	puts(h, 1, "x1", "x2", "x3")
	puts(h, 2, "y1", "y2", "y3")
	h.write(func(w *Writer) { h.end(w, 1) })
	h.write(func(w *Writer) { _, _ = w.Sweep(2) })
	if h.store.swept == 0 || h.store.trimming.from == nil {
		t.Fatalf("nothing is half done: %d, %q", h.store.swept, h.store.trimming.from)
	}
	other := h.away()
	defer other.db.Close()
	other.store.few = 0
	tidy(other, 100)
	other.write(func(w *Writer) { other.end(w, 2) })
	puts(other, 0, "a", "b", "c", "d")
	compact(other)
	h.store.Suspend()
	copyAll(t, other.db, h.db)
	if err := h.store.Reload(h.leases); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*fixture{h, other} {
		tidy(h, 100)
	}
	for _, family := range []string{"v", "h", "e", "m"} {
		if got, want := h.dump(family), other.dump(family); got != want {
			t.Errorf("family %s has\n%s\nand elsewhere\n%s", family, got, want)
		}
	}
}
