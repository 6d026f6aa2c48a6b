package replica

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// What is written down of names, of their past and of leases that were claimed is written with every claim and every
// release, so these records too are put into bytes by hand; the bytes are the same.

// The fields of logpb.
const (
	tenureToken, tenureLease, tenureHolder, tenureFrom, tenureTo, tenureWhy, tenureNote                 = 1, 2, 3, 4, 5, 6, 7
	nameName, nameEnded, nameCurrent, nameLast, namePinned, nameRevoked                                 = 1, 2, 3, 4, 5, 6
	nameFreed, nameFreedOrder, nameRevision                                                             = 7, 8, 9
	leaseID, leaseGeneration, leaseTTL, leaseCleared, leaseClaimed, leasePinned, leaseDoomed, leaseName = 1, 2, 3, 4, 6, 7, 8, 9
)

// appendRecord appends a record that can be a draft.
func appendRecord(text []byte, m proto.Message) []byte {
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
	text, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(text, m)
	if err != nil {
		panic(fmt.Sprintf("replica: cannot write %T: %v", m, err))
	}
	return text
}

func appendTenure(text []byte, m *logpb.Tenure) []byte {
	text = appendNumber(text, tenureToken, uint64(m.Token))
	text = appendNumber(text, tenureLease, uint64(m.Lease))
	text = appendText(text, tenureHolder, m.Holder)
	text = appendNumber(text, tenureFrom, uint64(m.FromMs))
	text = appendNumber(text, tenureTo, uint64(m.ToMs))
	text = appendNumber(text, tenureWhy, uint64(m.Why))
	return appendText(text, tenureNote, m.Note)
}

func appendName(text []byte, m *logpb.Name) []byte {
	text = appendText(text, nameName, m.Name)
	text = appendNumber(text, nameEnded, m.Ended)
	if m.Current != nil {
		// Its length, which stands in front of it, is known only when it is there.
		text = protowire.AppendTag(text, nameCurrent, protowire.BytesType)
		start := len(text)
		text = appendTenure(text, m.Current)
		var room [10]byte
		length := protowire.AppendVarint(room[:0], uint64(len(text)-start))
		text = append(text, length...)
		copy(text[start+len(length):], text[start:len(text)-len(length)])
		copy(text[start:], length)
	}
	text = appendNumber(text, nameLast, uint64(m.Last))
	text = appendOptional(text, namePinned, m.Pinned)
	text = appendOptional(text, nameRevoked, m.Revoked)
	text = appendNumber(text, nameFreed, uint64(m.Freed))
	text = appendNumber(text, nameFreedOrder, uint64(m.FreedOrder))
	return appendNumber(text, nameRevision, uint64(m.Revision))
}

func appendLease(text []byte, m *logpb.Lease) []byte {
	text = appendNumber(text, leaseID, uint64(m.Id))
	text = appendNumber(text, leaseGeneration, m.Generation)
	text = appendNumber(text, leaseTTL, uint64(m.TtlNs))
	text = appendNumber(text, leaseCleared, m.Cleared)
	text = appendNumber(text, leaseClaimed, protowire.EncodeBool(m.Claimed))
	text = appendNumber(text, leasePinned, protowire.EncodeBool(m.Pinned))
	text = appendNumber(text, leaseDoomed, protowire.EncodeBool(m.Doomed))
	return appendText(text, leaseName, m.Name)
}

// appendOptional appends bytes that are there although there are none, unless they are nil.
func appendOptional(text []byte, field protowire.Number, b []byte) []byte {
	if b == nil {
		return text
	}
	return protowire.AppendBytes(protowire.AppendTag(text, field, protowire.BytesType), b)
}
