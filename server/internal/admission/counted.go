package admission

import (
	"sync"
)

// Counted holds one value for each key that is in use. The first user of a key makes its value, and the last one that
// leaves removes it. The zero value is ready. Its methods are safe for concurrent use.
type Counted[K comparable, V any] struct {
	mu    sync.Mutex
	byKey map[K]*countedValue[V]
}

type countedValue[V any] struct {
	value V
	users int // guarded by Counted.mu
}

// Join returns the value of a key, and counts the caller as a user. The value is zero for the first user. The caller
// must call leave once, when it no longer uses the value.
func (c *Counted[K, V]) Join(key K) (value *V, leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey == nil {
		c.byKey = make(map[K]*countedValue[V])
	}
	found := c.byKey[key]
	if found == nil {
		found = new(countedValue[V])
		c.byKey[key] = found
	}
	found.users++
	return &found.value, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if found.users--; found.users == 0 {
			delete(c.byKey, key)
		}
	}
}

// Users returns the number of users of a key.
func (c *Counted[K, V]) Users(key K) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.byKey[key]; found != nil {
		return found.users
	}
	return 0
}

// Len returns the number of keys in use.
func (c *Counted[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey)
}
