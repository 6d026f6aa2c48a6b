package raftlog

import (
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// SnapshotData returns what travels in a message of raft with the whole state: the terms, and the record of versions.
func SnapshotData(terms Terms, versions *logpb.Level) []byte {
	m := terms.Record()
	m.Level = versions
	return record.New(record.KeyTerms, m).Value
}

// RecordsAfter returns those of a member's own records that raft's write of a snapshot changes: the log begins after the
// snapshot, with the entries that came with it. The other records stay.
func RecordsAfter(m *raftpb.Message, hard *raftpb.HardState) []record.Record {
	at := MarkOf(m.GetSnapshot())
	end := &logpb.Applied{Index: at.Index, Term: at.Term}
	own := []record.Record{
		record.New(record.KeyHardState, hard),
		record.New(record.KeyConfState, m.GetSnapshot().GetMetadata().GetConfState()),
		record.New(record.KeyApplied, end),
		record.New(record.KeyTruncated, end),
		record.New(record.KeyTerms, SnapshotTerms(m.GetSnapshot()).Record()),
	}
	sent := new(logpb.Terms)
	if proto.Unmarshal(m.GetSnapshot().GetData(), sent) == nil && sent.Level != nil {
		own = append(own, record.New(record.KeyLevel, sent.Level))
	}
	for _, e := range m.GetEntries() {
		own = append(own, record.New(record.LogKey(e.GetIndex()), e))
	}
	return own
}
