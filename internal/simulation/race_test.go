//go:build race

package simulation

// With the race detector everything takes ten times as long, and there is but one goroutine.
const usualSeeds, enoughForMarks = 2, 60
