//go:build race

package simulation

import "time"

// With the race detector everything takes ten times as long, and there is only one goroutine to watch.
const (
	usualSeeds, enoughForMarks = 1, 40
	usualLength                = 2 * time.Second
)
