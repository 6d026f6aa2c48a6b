package leasekeeper

// Waiting returns how many calls of a keeper wait for a name.
func Waiting(k *Keeper, name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiters.Len(name)
}

// TryLock reports whether the keeper's lock is free at this moment.
func TryLock(k *Keeper) bool {
	if !k.mu.TryLock() {
		return false
	}
	k.mu.Unlock()
	return true
}
