package raftlog

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

func TestMembersEntriesReadBack(t *testing.T) {
	for kind := roster.Add; kind <= roster.Bind; kind++ {
		want := roster.Change{Kind: kind, Member: roster.Member{ID: 7, Learner: true}}
		e, err := ParseMembers(MembersEntry(roster.Entry{Sequence: 3, Change: want}))
		if err != nil || e.Sequence != 3 || e.Change.Kind != kind || e.Change.Member.ID != 7 {
			t.Errorf("%v: %+v, %v", kind, e, err)
		}
	}
	for _, data := range []string{"", "\xff", "\x22\x01\xff"} {
		if e, err := ParseMembers(&raftpb.Entry{Data: []byte(data)}); !isDamage(err) {
			t.Errorf("%q was read as %+v, %v", data, e, err)
		}
	}
}

// A change of the members is the last entry that is applied before the next order, and raft hears the responses once, at
// the end.
func TestOrdersAreCutAtChangesOfMembers(t *testing.T) {
	for text, want := range map[string]string{"": "", "nn": "nn", "c": "c", "nc": "nc", "cn": "c|n", "ncncc": "nc|nc|c", "ccn": "c|c|n"} {
		m := &raftpb.Message{Responses: []*raftpb.Message{{}}}
		for _, c := range text {
			e := &raftpb.Entry{}
			if c == 'c' {
				e.Type = raftpb.EntryConfChange.Enum()
			}
			m.Entries = append(m.Entries, e)
		}
		got := ""
		orders := CutAtMembers(nil, m)
		for i, order := range orders {
			if i > 0 {
				got += "|"
			}
			for _, e := range order.GetEntries() {
				got += map[bool]string{true: "c", false: "n"}[e.GetType() == raftpb.EntryConfChange]
			}
			if (len(order.GetResponses()) > 0) != (i == len(orders)-1) {
				t.Errorf("%s: order %d has %d responses", text, i, len(order.GetResponses()))
			}
		}
		if got != want {
			t.Errorf("%s is cut into %s, and not %s", text, got, want)
		}
	}
}
