//go:build !race

package simulation

import "time"

// usualSeeds is how many worlds are run if nothing else is said, usualLength how long each has faults, and
// enoughForMarks how many have to see every mark.
const (
	usualSeeds, enoughForMarks = 40, 40
	usualLength                = time.Duration(0)
)
