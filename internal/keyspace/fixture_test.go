package keyspace

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tb is the common part of testing.TB and rapid.T.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// fixture is a store with a database in memory and fake leases.
type fixture struct {
	t      tb
	fs     vfs.FS
	db     *pebble.DB
	store  *Store
	leases *fakeLeases
	few    int // the value of Store.few for this test; 0 keeps the default
	pack   int // the same for Store.packBytes
}

func newFixture(t interface {
	tb
	Cleanup(func())
}) *fixture {
	h := openFixture(t)
	t.Cleanup(func() { h.db.Close() })
	return h
}

func openFixture(t tb) *fixture {
	h := &fixture{t: t, fs: vfs.NewMem(), leases: newFakeLeases(), pack: packBytes}
	h.open()
	return h
}

func (h *fixture) open() {
	h.t.Helper()
	db, err := pebble.Open("db", &pebble.Options{FS: h.fs, Logger: quiet{}, CacheSize: 64 << 20})
	if err != nil {
		h.t.Fatalf("opening the database: %v", err)
	}
	h.db = db
	if h.store, err = Open(db, h.leases); err != nil {
		h.t.Fatalf("opening the store: %v", err)
	}
	h.store.few, h.store.packBytes = h.few, h.pack
}

// reopen closes and opens the database. It discards the bindings of leases and loads them from the store.
func (h *fixture) reopen() {
	h.t.Helper()
	if err := h.db.Close(); err != nil {
		h.t.Fatalf("closing the database: %v", err)
	}
	h.leases.keys = make(map[int64]map[string]bool)
	h.open()
	err := h.store.Bindings(func(kv KV) bool {
		h.leases.Attach(kv.Lease, kv.Key)
		return true
	})
	if err != nil {
		h.t.Fatalf("bindings: %v", err)
	}
}

// write runs f on a batch, commits the batch and makes it visible to readers.
func (h *fixture) write(f func(*Writer)) Changes {
	h.t.Helper()
	w := h.store.Begin(h.db.NewBatch())
	f(w)
	if err := w.Seal(); err != nil || w.Err() != nil {
		h.t.Fatalf("writer: %v, %v", err, w.Err())
	}
	if err := w.Batch().Commit(pebble.NoSync); err != nil {
		h.t.Fatalf("commit: %v", err)
	}
	h.store.Commit(w)
	return w.Changes()
}

func (h *fixture) grant(id int64) {
	h.leases.generation++
	h.leases.alive[id] = h.leases.generation
}

// end ends a lease with all its keys.
func (h *fixture) end(w *Writer, id int64) Revision {
	rev := w.EndLease(id, h.leases.alive[id], h.leases.sorted(id))
	delete(h.leases.alive, id)
	delete(h.leases.keys, id)
	return rev
}

// dump returns the records of a family as text.
func (h *fixture) dump(family string) string {
	it, err := h.db.NewIter(familyBounds(family[0]))
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	defer it.Close()
	var out strings.Builder
	for valid := it.First(); valid; valid = it.Next() {
		fmt.Fprintf(&out, "%q = %q\n", it.Key(), it.Value())
	}
	return out.String()
}

type fakeLeases struct {
	generation uint64 // of the last grant
	alive      map[int64]uint64
	keys       map[int64]map[string]bool
	calls      int // number of calls of Attach and Detach
}

func newFakeLeases() *fakeLeases {
	return &fakeLeases{alive: make(map[int64]uint64), keys: make(map[int64]map[string]bool)}
}

func (l *fakeLeases) Generation(id int64) (uint64, bool) {
	g, ok := l.alive[id]
	return g, ok
}

func (l *fakeLeases) Attach(id int64, key []byte) {
	l.calls++
	if l.keys[id] == nil {
		l.keys[id] = make(map[string]bool)
	}
	if l.keys[id][string(key)] {
		panic(fmt.Sprintf("%q is attached to %d already", key, id))
	}
	l.keys[id][string(key)] = true
}

func (l *fakeLeases) Detach(id int64, key []byte) {
	l.calls++
	if !l.keys[id][string(key)] {
		panic(fmt.Sprintf("%q is not attached to %d", key, id))
	}
	delete(l.keys[id], string(key))
}

func (l *fakeLeases) sorted(id int64) []string { return slices.Sorted(maps.Keys(l.keys[id])) }

func (l *fakeLeases) String() string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(l.keys)) {
		if len(l.keys[id]) > 0 {
			parts = append(parts, fmt.Sprintf("%d:%q", id, l.sorted(id)))
		}
	}
	return "{" + strings.Join(parts, " ") + "}"
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// arguments are the parsed arguments of a transcript's line: words, name=number pairs and flags.
type arguments struct {
	words   []string
	numbers map[string]int64
}

func parse(line string) arguments {
	a := arguments{numbers: make(map[string]int64)}
	for _, word := range strings.Fields(line) {
		if name, text, ok := strings.Cut(word, "="); ok {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				panic(err)
			}
			a.numbers[name] = n
			continue
		}
		a.words = append(a.words, word)
	}
	return a
}

func (a arguments) has(word string) bool     { return slices.Contains(a.words, word) }
func (a arguments) number(name string) int64 { return a.numbers[name] }

func (a arguments) word(i int) string {
	if i >= len(a.words) {
		return ""
	}
	return a.words[i]
}

func (a arguments) key(i int) []byte { k, _ := keysOf(a.word(i)); return k }

// value returns a word as a value; "-" or nothing means no value.
func (a arguments) value(i int) []byte {
	if w := a.word(i); w != "-" && w != "" {
		return []byte(w)
	}
	return nil
}

// keysOf parses "key", "prefix*", "from..to", "from.." and "" for no key.
func keysOf(text string) (key, end []byte) {
	text = strings.ReplaceAll(text, `\0`, "\x00")
	if text == `""` {
		return nil, nil
	}
	if from, to, ok := strings.Cut(text, ".."); ok {
		if to == "" {
			return []byte(from), []byte{0}
		}
		return []byte(from), []byte(to)
	}
	if prefix, ok := strings.CutSuffix(text, "*"); ok {
		end := []byte(prefix)
		end[len(end)-1]++
		return []byte(prefix), end
	}
	return []byte(text), nil
}

func orText(err error, format string, args ...any) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf(format, args...)
}

func kvText(kv KV) string {
	text := fmt.Sprintf("%q=%q c%d m%d v%d", kv.Key, kv.Value, kv.CreateRevision, kv.ModRevision, kv.Version)
	if kv.Lease != 0 {
		text += fmt.Sprintf(" lease %d", kv.Lease)
	}
	return text
}

func prevText(kv *KV) string {
	if kv == nil {
		return ""
	}
	return ", was " + kvText(*kv)
}

func rangeText(res RangeResult, err error) string {
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	fmt.Fprintf(&out, "count %d", res.Count)
	if res.More {
		out.WriteString(", more")
	}
	fmt.Fprintf(&out, ", at %d", res.Revision)
	for _, kv := range res.KVs {
		out.WriteString("\n  " + kvText(kv))
	}
	return out.String()
}

func eventText(e Event) string {
	if e.Type == EventDelete {
		return fmt.Sprintf("delete %q m%d%s", e.KV.Key, e.KV.ModRevision, prevText(e.PrevKV))
	}
	return "put " + kvText(e.KV) + prevText(e.PrevKV)
}

func responseText(r WatchResponse) string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%d: at %d", r.WatchID, r.Revision)
	for _, flag := range []struct {
		set  bool
		name string
	}{{r.Created, "created"}, {r.Canceled, "canceled"}, {r.Fragment, "to be continued"}} {
		if flag.set {
			out.WriteString(", " + flag.name)
		}
	}
	if r.CompactRevision != 0 {
		fmt.Fprintf(&out, ", compacted to %d", r.CompactRevision)
	}
	if r.CancelReason != "" {
		out.WriteString(", " + r.CancelReason)
	}
	out.WriteByte('\n')
	for _, e := range r.Events {
		out.WriteString("  " + eventText(e) + "\n")
	}
	return out.String()
}

// idle reports whether Next would wait.
func (st *Stream) idle() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return !st.closed && len(st.ready) == 0 && st.pending == nil && st.queue.empty() && len(st.lagging) == 0
}

// nextNow calls Next on a stream that is not idle. It returns nil if the stream only had to catch up over revisions
// without events.
func nextNow(st *Stream) (*WatchResponse, error) {
	for len(st.ready) == 0 {
		if st.idle() {
			return nil, nil
		}
		if err := st.advance(context.Background()); err != nil {
			return nil, err
		}
	}
	r := st.takeReady()
	return &r, nil
}
