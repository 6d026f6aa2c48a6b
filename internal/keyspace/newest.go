package keyspace

import "errors"

// Get returns a key as this Writer left it, or nil if it does not exist.
func (w *Writer) Get(key []byte) (*KV, error) {
	l, err := w.ask(key, true)
	if err != nil || !l.found {
		return nil, err
	}
	return &l.kv, nil
}

// Has reports whether a key exists, as this Writer left it. It is cheaper than Get.
func (w *Writer) Has(key []byte) (bool, error) {
	l, err := w.ask(key, false)
	return l.found, err
}

func (w *Writer) ask(key []byte, withValue bool) (l latest, err error) {
	err = w.request(func() error {
		if len(key) == 0 {
			return ErrEmptyKey
		}
		l, err = w.latest(key, withValue)
		return err
	})
	return l, err
}

// latest is the state of a key as a Writer left it.
type latest struct {
	found      bool
	kv         KV     // has its value only if the caller asked for it
	generation uint64 // of kv.Lease
	ended      *ending
}

// latest reads the newest version of a key. If that version belongs to an ended lease, whose tombstone for the key
// may be missing, latest returns that ending in ended.
func (w *Writer) latest(key []byte, withValue bool) (l latest, err error) {
	if n, ok := w.s.recents.get(key); ok && (n.version.deleted || !withValue) {
		return w.asLatest(key, n), nil
	}
	b, err := w.Indexed()
	if err != nil {
		return l, err
	}
	it, err := b.NewIter(spanOf(key, nil).bounds())
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.First() {
		if err = it.Error(); err == nil {
			w.s.recents.set(key, 0, version{deleted: true})
		}
		return l, err
	}
	prefix, mod, err := splitVersionKey(it.Key())
	if err != nil {
		return l, err
	}
	v, err := versionAt(it)
	if err != nil {
		return l, err
	}
	w.s.recents.set(key, mod, v)
	if v.deleted {
		return l, nil
	}
	if l.ended = w.s.byGeneration[v.generation]; l.ended != nil {
		return l, nil
	}
	l.found, l.generation = true, v.generation
	i := item{prefix: prefix, mod: mod, version: v}
	l.kv, err = i.copyKV(withValue)
	return l, err
}

// asLatest returns the result of latest for a cached newest version.
func (w *Writer) asLatest(key []byte, n newest) (l latest) {
	v := &n.version
	if v.deleted {
		return l
	}
	if l.ended = w.s.byGeneration[v.generation]; l.ended != nil {
		return l
	}
	l.found, l.generation = true, v.generation
	l.kv = KV{Key: key, CreateRevision: v.create, ModRevision: n.mod, Version: v.version, Lease: v.lease}
	return l
}
