package record

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/wire"
)

// Every claim and every release writes records of names, of ended tenures and of claimed leases. So this file encodes
// them with package wire, without reflection, into the same bytes as package proto.

// Field numbers of logpb.
const (
	tenureToken, tenureLease, tenureHolder, tenureFrom, tenureTo, tenureWhy, tenureNote, tenureFinished  = 1, 2, 3, 4, 5, 6, 7, 8
	nameName, nameEnded, nameCurrent, nameLast, namePinned, nameRevoked                                  = 1, 2, 3, 4, 5, 6
	nameFreed, nameFreedOrder, nameRevision                                                              = 7, 8, 9
	leaseID, leaseGeneration, leaseTTL, leaseCleared, leaseClaimed, leasePinned, leaseRefused, leaseName = 1, 2, 3, 4, 6, 7, 8, 9
	leasePriority, leaseOvertaken, leaseCreator                                                          = 10, 11, 12
)

// appendMessage appends a record of a type that a Buffer can hold.
func appendMessage(text []byte, m proto.Message) []byte {
	switch m := m.(type) {
	case *logpb.Tenure:
		return appendTenure(text, m)
	case *logpb.Name:
		return appendName(text, m)
	case *logpb.Lease:
		if m.Checkpointed == nil {
			return appendLease(text, m)
		}
	}
	return wire.AppendMessage(text, m)
}

func appendTenure(text []byte, m *logpb.Tenure) []byte {
	text = wire.AppendNumber(text, tenureToken, uint64(m.Token))
	text = wire.AppendNumber(text, tenureLease, uint64(m.Lease))
	text = wire.AppendText(text, tenureHolder, m.Holder)
	text = wire.AppendNumber(text, tenureFrom, uint64(m.FromMs))
	text = wire.AppendNumber(text, tenureTo, uint64(m.ToMs))
	text = wire.AppendNumber(text, tenureWhy, uint64(m.Why))
	text = wire.AppendText(text, tenureNote, m.Note)
	return wire.AppendNumber(text, tenureFinished, protowire.EncodeBool(m.Finished))
}

func appendName(text []byte, m *logpb.Name) []byte {
	text = wire.AppendText(text, nameName, m.Name)
	text = wire.AppendNumber(text, nameEnded, m.Ended)
	if m.Current != nil {
		// The length is in front of the tenure but only known after encoding it.
		text = protowire.AppendTag(text, nameCurrent, protowire.BytesType)
		start := len(text)
		text = appendTenure(text, m.Current)
		var room [10]byte
		length := protowire.AppendVarint(room[:0], uint64(len(text)-start))
		text = append(text, length...)
		copy(text[start+len(length):], text[start:len(text)-len(length)])
		copy(text[start:], length)
	}
	text = wire.AppendNumber(text, nameLast, uint64(m.Last))
	text = wire.AppendOptional(text, namePinned, m.Pinned)
	text = wire.AppendOptional(text, nameRevoked, m.Revoked)
	text = wire.AppendNumber(text, nameFreed, uint64(m.Freed))
	text = wire.AppendNumber(text, nameFreedOrder, uint64(m.FreedOrder))
	return wire.AppendNumber(text, nameRevision, uint64(m.Revision))
}

func appendLease(text []byte, m *logpb.Lease) []byte {
	text = wire.AppendNumber(text, leaseID, uint64(m.Id))
	text = wire.AppendNumber(text, leaseGeneration, m.Generation)
	text = wire.AppendNumber(text, leaseTTL, uint64(m.TtlNs))
	text = wire.AppendNumber(text, leaseCleared, m.Cleared)
	text = wire.AppendNumber(text, leaseClaimed, protowire.EncodeBool(m.Claimed))
	text = wire.AppendNumber(text, leasePinned, protowire.EncodeBool(m.Pinned))
	text = wire.AppendNumber(text, leaseRefused, protowire.EncodeBool(m.RenewalRefused))
	text = wire.AppendText(text, leaseName, m.Name)
	text = wire.AppendNumber(text, leasePriority, uint64(int64(m.Priority)))
	text = wire.AppendNumber(text, leaseOvertaken, protowire.EncodeBool(m.Overtaken))
	return wire.AppendText(text, leaseCreator, m.Creator)
}
