package toy

import "testing"

func TestShare(t *testing.T) {
	if Share(6, 3) != 2 || Share(6, 0) != 0 || Share(0, 3) != 0 {
		t.Error("wrong share")
	}
}

func TestWithinKnowsTheLowerBound(t *testing.T) {
	if Within(1, 2, 3) || !Within(2, 2, 3) {
		t.Error("wrong bound")
	}
}

func TestHalve(t *testing.T) {
	if Halve(0) != 0 || Halve(12) != 3 {
		t.Error("wrong half")
	}
}
