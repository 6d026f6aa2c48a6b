package clientgolease

// LetGo ends the goroutine that holds the lease of a leadership whose work never ends, so that a test can end.
func LetGo(l *Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tenure.drop()
}
