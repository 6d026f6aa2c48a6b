package raftlog

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

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

func encodedTerms(t *testing.T, terms Terms) []byte {
	t.Helper()
	data, err := proto.Marshal(terms.Record())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Bytes that cannot be read to their end say nothing of terms.
func TestTermsWithGarbageBehindThemAreUnknown(t *testing.T) {
	data := encodedTerms(t, Terms{{Index: 1, Term: 1}, {Index: 5, Term: 2}})
	snapshot := func(data []byte) *raftpb.Snapshot {
		return &raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(7)), Term: new(uint64(2))}}
	}
	if got := SnapshotTerms(snapshot(data)); len(got) != 2 {
		t.Fatalf("the terms are %v", got)
	}
	if got := SnapshotTerms(snapshot(append(data, 0xff))); len(got) != 1 || got[0] != (Mark{Index: 7, Term: 2}) {
		t.Errorf("with garbage the terms are %v", got)
	}
}
