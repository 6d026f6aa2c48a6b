package claimtest_test

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	oneSeed   = flag.Uint64("claimtest.seed", 0, "run the randomized tests with this seed alone")
	moreSeeds = flag.Int("claimtest.seeds", 1, "run the randomized tests with so many times the usual number of seeds")
)

// seeds runs a randomized test with seeds 1 to n, and returns what the failing runs have found.
func seeds(n int, run func(seed uint64) (wrong string)) (found map[uint64]string) {
	found = make(map[uint64]string)
	first, last := uint64(1), uint64(n**moreSeeds)
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	for seed := first; seed <= last; seed++ {
		if wrong := run(seed); wrong != "" {
			found[seed] = wrong
		}
	}
	return found
}

// firstSeed runs a randomized test with seeds 1 to at most n, until one of the runs finds something wrong.
func firstSeed(n int, run func(seed uint64) (wrong string)) (seed uint64, wrong string) {
	first, last := uint64(1), uint64(n)
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	for seed := first; seed <= last; seed++ {
		if wrong := run(seed); wrong != "" {
			return seed, wrong
		}
	}
	return last, ""
}

// failWithFirst fails with the finding of the smallest seed, and says how to run it again.
func failWithFirst(t *testing.T, found map[uint64]string) {
	t.Helper()
	least := uint64(0)
	for seed := range found {
		if least == 0 || seed < least {
			least = seed
		}
	}
	if least != 0 {
		t.Errorf("%d seeds found something wrong. With seed %d: %s\nto see it again: go test ./claim/claimtest -run '^%s$' -claimtest.seed %d",
			len(found), least, found[least], t.Name(), least)
	}
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6c65617365)) }
