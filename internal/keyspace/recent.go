package keyspace

// recentKeys is how many keys each half of recents holds.
const recentKeys = 1 << 14

// recents remembers what the newest version of keys is that were written or looked up lately, because a put
// must know what it replaces, and looking that up in the database costs more than writing. It belongs to the
// writing goroutine. It is right or silent: every write of a version or a tombstone goes through it, and what
// is forgotten is looked up.
//
// It is two maps. When the young one is full it becomes the old one, whose keys are forgotten unless they
// are written again meanwhile.
type recents struct {
	young, old map[string]newest
}

// newest is a version without its value. Whether its lease has ended is not remembered but asked.
type newest struct {
	mod     Revision
	version version // value is nil
}

func (r *recents) get(key []byte) (newest, bool) {
	if n, ok := r.young[string(key)]; ok {
		return n, true
	}
	n, ok := r.old[string(key)]
	return n, ok
}

// wrote takes note of what is the newest version of a key from now on.
func (r *recents) set(key []byte, mod Revision, v version) {
	v.value = nil
	if len(r.young) >= recentKeys {
		r.young, r.old = nil, r.young
	}
	if r.young == nil {
		r.young = make(map[string]newest)
	}
	r.young[string(key)] = newest{mod, v}
}

// rewrote is wrote for a key that is hardly looked for again: it is remembered only if it was before.
func (r *recents) update(key []byte, mod Revision, v version) {
	if _, ok := r.get(key); ok {
		r.set(key, mod, v)
	}
}

// buried takes note of a tombstone, which may be older than the newest version.
func (r *recents) setDeleted(key []byte, rev Revision) {
	if n, ok := r.get(key); ok && n.mod < rev {
		r.set(key, rev, version{deleted: true})
	}
}
