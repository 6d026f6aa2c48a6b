package claimed

// Remembered returns how many claims, local queues and watches a backend remembers.
func (b *Backend) Remembered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.tenures) + len(b.localQueues) + len(b.watchers)
}
