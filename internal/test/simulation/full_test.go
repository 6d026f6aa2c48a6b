//go:build !race

package simulation

import "time"

// usualSeeds is the number of worlds in a run without flags. usualLength is how long each has faults. enoughForMarks is the
// number of worlds that must see every mark together.
const (
	usualSeeds, enoughForMarks = 40, 40
	usualLength                = time.Duration(0)
)
