package keyspace

import "errors"

// Get returns a key as this Writer left it, nil if it is not there.
func (w *Writer) Get(key []byte) (*KV, error) {
	l, err := w.ask(key, true)
	if err != nil || !l.found {
		return nil, err
	}
	return &l.kv, nil
}

// Has says whether a key is there, as this Writer left it. It is cheaper than Get.
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

// latest is the state of a key as the Writer left it.
type latest struct {
	found      bool
	kv         KV     // with value only if that was asked for
	generation uint64 // of kv.Lease
	ended      *ending
}

// latest reads the newest version of the key. If it is of an ended lease
// whose tombstone for it may be missing, ended says which.
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

// asLatest is what latest finds if the newest version of a key is n.
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
