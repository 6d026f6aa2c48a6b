//go:build !race

package simulation

// usualSeeds is how many worlds are run if nothing else is said, and enoughForMarks how many have to see every mark.
const usualSeeds, enoughForMarks = 60, 60
