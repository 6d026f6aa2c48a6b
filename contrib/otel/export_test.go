package otellease

// Watched returns the number of leases whose events are awaited.
func (t *Tracer) Watched() int {
	t.watched.mu.Lock()
	defer t.watched.mu.Unlock()
	return len(t.watched.leases)
}
