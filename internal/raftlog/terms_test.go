package raftlog

import "testing"

// The terms that are remembered are bounded, and the oldest are forgotten.
func TestOldestTermsAreForgotten(t *testing.T) {
	var terms Terms
	for i := range uint64(3 * maxTerms) {
		terms = terms.Begin(Mark{Index: 100 + i, Term: 10 + i})
	}
	if len(terms) != maxTerms || terms[maxTerms-1] != (Mark{Index: 100 + 3*maxTerms - 1, Term: 10 + 3*maxTerms - 1}) {
		t.Errorf("%d terms are remembered, the last of them %v", len(terms), terms[len(terms)-1])
	}
}
