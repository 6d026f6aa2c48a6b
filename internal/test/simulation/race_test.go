//go:build race

package simulation

import "time"

// With the race detector everything takes ten times as long, and there is but one goroutine.
const (
	usualSeeds, enoughForMarks = 1, 40
	usualLength                = 2 * time.Second
)
