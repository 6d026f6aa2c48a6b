package claimed

// Remembered returns how many claims, lines and watches a backend keeps in mind.
func (b *Backend) Remembered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.tenures) + len(b.localQueues) + len(b.watchers)
}
