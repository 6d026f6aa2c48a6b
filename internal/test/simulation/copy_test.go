package simulation

import (
	"slices"
	"testing"
)

// Old copies of folders that are put back are not silent: the member that has what the others lost halts, whether it hears
// of other entries in the place of its own or is sent the whole state, and answers no read before.
func TestAnOldCopyOfAFolderIsNotSilent(t *testing.T) {
	worlds := batch(t, 1+usualSeeds/2, Options{Stress: Copies, Length: usualLength})
	seen := 0
	for _, r := range worlds {
		if slices.Contains(r.Marks, "an old copy of a folder was put back") {
			seen++
		}
	}
	if t.Logf("%d of %d worlds have lost something", seen, len(worlds)); seen < len(worlds)/2 {
		t.Error("too few of them")
	}
}

// Members that acknowledge what nobody has change nothing.
func TestBoastsChangeNothing(t *testing.T) {
	for _, r := range batch(t, 1+usualSeeds/4, Options{Stress: Boasts, Length: usualLength}) {
		if !slices.Contains(r.Marks, "a member acknowledged what nobody has") {
			t.Errorf("seed %d: nobody boasts", r.Seed)
		}
	}
}

// A majority of emptied folders founds no cluster, whether the member that is left is there or comes later.
func TestMajorityOfEmptiedDirectoriesFoundsNothing(t *testing.T) {
	for _, r := range batch(t, 1+usualSeeds/4, Options{Stress: Wipes, Length: usualLength}) {
		if !slices.Contains(r.Marks, "a majority of folders was emptied") {
			t.Errorf("seed %d: nothing was emptied", r.Seed)
		}
	}
}
