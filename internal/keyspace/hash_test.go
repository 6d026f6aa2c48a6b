package keyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestHashCoversReadableVersions makes random requests. Two hashes must be equal exactly if the model shows the same
// versions from the same compact revision on, regardless of sweeps, trims and restarts.
func TestHashCoversReadableVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{T: t, fixture: openFixture(t), model: newModel()}
		m.few = rapid.SampledFrom([]int{0, fewKeys}).Draw(t, "few")
		m.pack = rapid.SampledFrom([]int{1, 12, packBytes}).Draw(t, "pack")
		m.store.few, m.store.packBytes = m.few, m.pack
		m.fixture.t = t
		m.hub = NewHub(m.store)
		defer func() { m.db.Close() }()
		seen := hashes{m: m, byText: make(map[string]uint32), byHash: make(map[HashResult]string), ofKeys: make(map[Revision]uint32)}
		t.Repeat(map[string]func(*rapid.T){
			"batch":  m.batch,
			"batch2": m.batch,
			"grant":  m.grantOne,
			"reopen": m.reopenAll,
			"":       func(t *rapid.T) { m.T = t; seen.look() },
		})
		m.T = t
		m.write(func(w *Writer) { _, _ = w.Sweep(1 << 30) })
		seen.look()
		for range 2 {
			m.write(func(w *Writer) { _, _ = w.Trim(1 << 30) })
			seen.look()
		}
		if err := m.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false); err != nil {
			t.Fatal(err)
		}
		seen.look()
	})
}

// hashes are all hashes seen in a run.
type hashes struct {
	m      *machine
	byText map[string]uint32
	byHash map[HashResult]string // by hash and compact revision, the fields that members compare
	ofKeys map[Revision]uint32   // results of HashKeys
}

// look compares the hash of everything, and those of the keys at the newest few revisions, with those seen before.
func (h *hashes) look() {
	h.m.Helper()
	current := h.m.model.lastRevision()
	got, err := h.m.store.Hash(context.Background())
	if err != nil || got.Revision != current || got.Compact != h.m.model.compact || got.Current != current {
		h.m.Fatalf("hash at %d: %+v, %v", current, got, err)
	}
	text := h.m.model.text()
	if old, ok := h.byText[text]; ok && old != got.Hash {
		h.m.Fatalf("hash at %d is %x and was %x, of the same\n%s", current, got.Hash, old, text)
	}
	got.Revision, got.Current = 0, 0
	if old, ok := h.byHash[got]; ok && old != text {
		h.m.Fatalf("hash %x is of both\n%sand\n%s", got.Hash, old, text)
	}
	h.byText[text], h.byHash[got] = got.Hash, text
	for rev := max(h.m.model.compact, current-3, 1); rev <= current; rev++ {
		keys, err := h.m.store.HashKeys(context.Background(), rev)
		if old, known := h.ofKeys[rev]; err != nil || keys.Hash == 0 || known && old != keys.Hash {
			h.m.Fatalf("hash of the keys at %d: %+v, %v; it was %x", rev, keys, err, old)
		}
		h.ofKeys[rev] = keys.Hash
	}
}

// text returns everything that can be read.
func (m *model) text() string {
	var out strings.Builder
	for rev := max(m.compact, 1); rev <= m.lastRevision(); rev++ {
		fmt.Fprintf(&out, "%d:", rev)
		for _, key := range slices.Sorted(maps.Keys(m.states[rev])) {
			fmt.Fprintf(&out, " %q", fmt.Sprint(m.states[rev][key]))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func TestHashOfKeysRefusesUnreadableRevisions(t *testing.T) {
	h := newFixture(t)
	for range 3 {
		h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("k")}) })
	}
	h.write(func(w *Writer) { _ = w.Compact(3) })
	for rev, want := range map[int64]error{2: ErrCompacted, 3: nil, 4: nil, 0: nil, -1: nil, 5: ErrFutureRevision} {
		if _, err := h.store.HashKeys(context.Background(), rev); !errors.Is(err, want) {
			t.Errorf("at %d: %v, want %v", rev, err, want)
		}
	}
}

func TestHashesEndWithTheirContext(t *testing.T) {
	h := newFixture(t)
	for i := range 2 * contextEvery {
		h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: fmt.Append(nil, i)}) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := h.store.Hash(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	if _, err := h.store.HashKeys(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("keys with an ended context: %v", err)
	}
}

// The hash of the keys at a revision is the same before and after the revision is compacted and trimmed. It differs
// between revisions, also if the keys are the same, and that of an empty keyspace is not 0.
func TestCompactionKeepsTheHashOfKeys(t *testing.T) {
	h := newFixture(t)
	hash := func(rev Revision) uint32 {
		t.Helper()
		got, err := h.store.HashKeys(context.Background(), rev)
		if err != nil {
			t.Fatal(err)
		}
		return got.Hash
	}
	seen := map[uint32]Revision{0: 0}
	look := func(rev Revision) {
		t.Helper()
		if same, ok := seen[hash(rev)]; ok {
			t.Errorf("revisions %d and %d have the hash %x", same, rev, hash(rev))
		}
		seen[hash(rev)] = rev
	}
	look(1)
	h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("a")}) })
	look(2)
	h.write(func(w *Writer) { _, _ = w.DeleteRange(DeleteRequest{Key: []byte("a")}) })
	look(3)
	h.grant(1)
	h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("b"), Lease: 1}) })
	look(4)
	h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("b"), Lease: 1}) })
	look(5)
	h.write(func(w *Writer) { h.end(w, 1) })
	look(6)
	before := [2]uint32{hash(5), hash(6)}
	h.write(func(w *Writer) { _ = w.Compact(5) })
	h.write(func(w *Writer) { _, _ = w.Sweep(1 << 30) })
	h.write(func(w *Writer) { _, _ = w.Trim(1 << 30) })
	if after := [2]uint32{hash(5), hash(6)}; after != before {
		t.Errorf("the hashes at 5 and 6 were %x and are %x", before, after)
	}
}

// A byte that moves from one key to the next, or between key and value, changes the hash.
func TestHashDistinguishesKeyAndValueBoundaries(t *testing.T) {
	var sums []uint32
	for _, kv := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"a", ""}, {"abc", ""}} {
		h := newFixture(t)
		h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte(kv[0]), Value: []byte(kv[1])}) })
		got, err := h.store.Hash(context.Background())
		if err != nil || slices.Contains(sums, got.Hash) {
			t.Errorf("%q: %+v, %v", kv, got, err)
		}
		sums = append(sums, got.Hash)
	}
}

// Lag sums the lags of watchers over the open streams.
func TestWatchLagSumsOpenStreams(t *testing.T) {
	h := newFixture(t)
	hub := NewHub(h.store)
	open, full, gone := hub.NewStream(StreamLimits{}), hub.NewStream(StreamLimits{Events: 1}), hub.NewStream(StreamLimits{})
	for _, st := range []*Stream{open, full, gone} {
		if _, err := st.Watch(WatchRequest{Key: []byte("k")}); err != nil {
			t.Fatal(err)
		}
	}
	gone.Close()
	for range 4 {
		hub.Publish(h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("k")}) }))
	}
	want := WatchLag{Streams: 2, Watchers: 2, Lagging: 1, Queued: 5, Furthest: 3}
	if got := hub.Lag(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	open.Close()
	full.Close()
	if got := hub.Lag(); got != (WatchLag{}) {
		t.Errorf("%+v after all were closed", got)
	}
}
