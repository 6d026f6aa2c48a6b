package simulation

import (
	"slices"
	"testing"
)

// An old copy of a data directory is put back, so that the other members lose entries. The member that still has them halts,
// whether it receives other entries in their place or the whole state. It answers no read before.
func TestMemberHaltsAfterAnOldCopyIsPutBack(t *testing.T) {
	worlds := batch(t, 1+usualSeeds/2, Options{Stress: Copies, Length: usualLength})
	seen := 0
	for _, r := range worlds {
		if slices.Contains(r.Marks, "an old copy of a data directory was put back") {
			seen++
		}
	}
	if t.Logf("%d of %d worlds have lost entries", seen, len(worlds)); seen < len(worlds)/2 {
		t.Error("too few of them")
	}
}

// Acknowledgements of entries that no member has do no harm.
func TestFalseAcknowledgementsAreHarmless(t *testing.T) {
	for _, r := range batch(t, 1+usualSeeds/4, Options{Stress: Boasts, Length: usualLength}) {
		if !slices.Contains(r.Marks, "a member acknowledged entries that no member has") {
			t.Errorf("seed %d: no member sent a false acknowledgement", r.Seed)
		}
	}
}

// A majority with emptied data directories founds no cluster, whether the remaining member is there or comes later.
func TestMajorityOfEmptiedDirectoriesFoundsNothing(t *testing.T) {
	for _, r := range batch(t, 1+usualSeeds/4, Options{Stress: Wipes, Length: usualLength}) {
		if !slices.Contains(r.Marks, "a majority of data directories was emptied") {
			t.Errorf("seed %d: no data directory was emptied", r.Seed)
		}
	}
}
