package clock

// System is this machine's two clocks as a value, for a program that can also be given clocks that a test moves.
type System struct{}

// Now reads both clocks, as the function [Now] does.
func (System) Now() Instant { return Now() }

// Moved returns nil, a channel that never delivers: timers notice that these clocks move.
func (System) Moved() <-chan struct{} { return nil }
