package roster

import (
	"errors"
	"fmt"
	"strings"
)

// A Standing says how one member knows another.
type Standing struct {
	Known    uint64 // the incarnation of the receiver's directory on the sender's disk; 0: none
	Data     bool   // the sender has log entries or a state
	Founding bool   // an operator has ordered the sender to found the cluster without the missing members
	Ask      bool   // the receiver should answer with its own
}

// ErrFounding says why a member does not found its cluster.
var ErrFounding = errors.New("the cluster is not founded")

// Fresh is what a new member knows of how the others know it.
type Fresh struct {
	Self, Incarnation uint64
	Founders          []uint64            // this member among them
	Stands            map[uint64]Standing // by member: the newest; also of members that know another directory of this one
	Founding          bool                // an operator has ordered to found the cluster without the missing members
}

// Agrees reports whether another member has this directory's incarnation on its disk, and this member has that one's.
// Peers are the incarnations on this member's disk.
func (f *Fresh) Agrees(member uint64, peers map[uint64]uint64) bool {
	return f.Stands[member].Known == f.Incarnation && peers[member] != 0
}

// Agreed returns how many founders agree, this member included.
func (f *Fresh) Agreed(peers map[uint64]uint64) int {
	n := 1
	for _, id := range f.Founders {
		if id != f.Self && f.Agrees(id, peers) {
			n++
		}
	}
	return n
}

// MayFoundWithout returns why a member that has no data may not found the cluster without the missing members; nil if
// it may.
func (f *Fresh) MayFoundWithout(peers map[uint64]uint64) error {
	for _, id := range f.Founders {
		switch s := f.Stands[id]; {
		case s.Data:
			return fmt.Errorf("%w: member %x has data, so the cluster exists; a new one would lose that", ErrFounding, id)
		case s.Known != 0 && s.Known != f.Incarnation:
			return fmt.Errorf("%w: member %x knows another data directory of this member, so the cluster existed", ErrFounding, id)
		}
	}
	if agreed := f.Agreed(peers); agreed < majority(len(f.Founders)) {
		return fmt.Errorf("%w: only %d of %d members are up, and a majority must be", ErrFounding, agreed, len(f.Founders))
	}
	return nil
}

// Awaits returns what the member waits for before it joins the cluster.
func (f *Fresh) Awaits(peers map[uint64]uint64) string {
	var reasons []string
	for _, id := range f.Founders {
		if id == f.Self || f.Agrees(id, peers) {
			continue
		}
		s, heard := f.Stands[id]
		switch {
		case !heard:
			reasons = append(reasons, fmt.Sprintf("member %x does not answer", id))
		case s.Known != 0 && s.Known != f.Incarnation && s.Data:
			reasons = append(reasons, fmt.Sprintf("member %x has data, and knows another data directory of this member", id))
		case s.Known != 0 && s.Known != f.Incarnation:
			reasons = append(reasons, fmt.Sprintf("member %x knows another data directory of this member", id))
		default:
			reasons = append(reasons, fmt.Sprintf("member %x is not yet acquainted", id))
		}
	}
	return strings.Join(reasons, ", ")
}
