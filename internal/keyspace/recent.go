package keyspace

// recentKeys is the number of keys in each half of recents.
const recentKeys = 1 << 14

// recents caches the newest versions of keys that were written or looked up recently. A put must know which version
// it replaces, and looking that up in the database costs more than writing. Only the writing goroutine uses it.
//
// A cached version is always right, because every write of a version or a tombstone goes through the cache. A key
// that is not cached is looked up in the database.
//
// The cache consists of two maps. When the young one is full it becomes the old one, and the previous old one is
// dropped. A key survives if it is written or looked up meanwhile.
type recents struct {
	young, old map[string]newest
}

// newest is a version without its value. It does not say whether the version's lease has ended.
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

// set caches the newest version of a key.
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

// update updates a cached version. It is for keys that will hardly be looked up, so it adds none.
func (r *recents) update(key []byte, mod Revision, v version) {
	if _, ok := r.get(key); ok {
		r.set(key, mod, v)
	}
}

// setDeleted caches a tombstone, unless a newer version is cached.
func (r *recents) setDeleted(key []byte, rev Revision) {
	if n, ok := r.get(key); ok && n.mod < rev {
		r.set(key, rev, version{deleted: true})
	}
}
