package clock

// System is this machine's two clocks as a value, for a program that a test can also give [Manual] clocks.
type System struct{}

// Now reads both clocks, like the function [Now].
func (System) Now() Instant { return Now() }

// Moved returns nil, a channel that never delivers: timers follow the machine's clocks by themselves.
func (System) Moved() <-chan struct{} { return nil }
