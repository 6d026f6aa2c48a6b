package raftlog

import (
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// raftKinds are the types of raft's changes by the kinds of ours.
var raftKinds = map[roster.Kind]raftpb.ConfChangeType{
	roster.Add: raftpb.ConfChangeAddNode, roster.Remove: raftpb.ConfChangeRemoveNode, roster.Promote: raftpb.ConfChangeAddNode,
	roster.Update: raftpb.ConfChangeUpdateNode, roster.Describe: raftpb.ConfChangeUpdateNode, roster.Bind: raftpb.ConfChangeUpdateNode,
}

// MembersEntry returns the entry of a change of the members, without index and term.
func MembersEntry(e roster.Entry) *raftpb.Entry {
	kind := raftKinds[e.Change.Kind]
	if e.Change.Kind == roster.Add && e.Change.Member.Learner {
		kind = raftpb.ConfChangeAddLearnerNode
	}
	data, err := proto.Marshal(&raftpb.ConfChange{Type: kind.Enum(), NodeId: new(e.Change.Member.ID), Context: e.Marshal()})
	if err != nil {
		panic(fmt.Sprintf("raftlog: cannot encode a change of the members: %v", err))
	}
	return &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Data: data}
}

// ParseMembers reads what MembersEntry wrote.
func ParseMembers(e *raftpb.Entry) (roster.Entry, error) {
	change := new(raftpb.ConfChange)
	err := proto.Unmarshal(e.GetData(), change)
	if err == nil {
		var entry roster.Entry
		if entry, err = roster.ParseEntry(change.GetContext()); err == nil {
			return entry, nil
		}
	}
	return roster.Entry{}, &record.DamagedError{What: "a change of the members that cannot be read", Err: err}
}

// CutAtMembers appends raft's order to apply committed entries to orders that are carried out one after the other. It cuts
// the order so that a change of the members is the last entry of its part. Raft's responses belong to the last part.
func CutAtMembers(orders []*raftpb.Message, m *raftpb.Message) []*raftpb.Message {
	entries := m.GetEntries()
	for {
		i := slices.IndexFunc(entries, func(e *raftpb.Entry) bool { return e.GetType() == raftpb.EntryConfChange })
		if i < 0 || i+1 == len(entries) {
			break
		}
		orders = append(orders, &raftpb.Message{Type: m.Type, To: m.To, From: m.From, Entries: entries[:i+1]})
		entries = entries[i+1:]
	}
	if len(entries) == len(m.GetEntries()) {
		return append(orders, m)
	}
	return append(orders, &raftpb.Message{Type: m.Type, To: m.To, From: m.From, Entries: entries, Responses: m.GetResponses()})
}

// ConfChanges returns the changes by which raft's configuration gets the members of a list, in an order in which each
// leaves some voter. There is one at most, except for a member that joins: it learns of the founders and of the first
// change at the same entry.
func ConfChanges(c tracker.Config, list roster.Roster) (changes []*raftpb.ConfChange) {
	add := func(kind raftpb.ConfChangeType, id uint64) {
		changes = append(changes, &raftpb.ConfChange{Type: kind.Enum(), NodeId: new(id)})
	}
	voters := c.Voters.IDs()
	for _, id := range list.Voters() {
		if _, there := voters[id]; !there {
			add(raftpb.ConfChangeAddNode, id)
		}
	}
	for _, id := range list.Learners() {
		if _, there := c.Learners[id]; !there {
			add(raftpb.ConfChangeAddLearnerNode, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(voters)) {
		if _, there := list.Member(id); !there {
			add(raftpb.ConfChangeRemoveNode, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Learners)) {
		if _, there := list.Member(id); !there {
			add(raftpb.ConfChangeRemoveNode, id)
		}
	}
	return changes
}
