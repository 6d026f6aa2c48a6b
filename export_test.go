package leasekeeper

// Waiting returns how many calls of a keeper wait for a name.
func Waiting(k *Keeper, name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiters.Len(name)
}
