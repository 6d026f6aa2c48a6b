package entry

import (
	"slices"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
)

// NewestLevel is the greatest level of the commands that this version can apply.
const NewestLevel = 1

// Level returns the level of a command. While a cluster is upgraded, its members are of different versions. A member that
// does not know a command halts at it, so the leader takes on a command only if all members can apply its level. Commands
// of level 0 are as old as the log.
func Level(c Command) uint32 {
	switch c := c.(type) {
	case ownership.Finish, ownership.RaiseMark, ownership.Prefer:
		return 1
	case ownership.Claim:
		if c.Priority != 0 {
			return 1
		}
	}
	return 0
}

// Levels are what a member knows of the levels of commands. The zero Levels knows nothing.
type Levels struct {
	// Applied is the greatest level that the member has applied, also before its start.
	Applied uint32
	peers   map[uint64]uint32 // by member: the greatest that it can apply, as it said last
}

// Hear notes the greatest level that another member can apply.
func (l *Levels) Hear(member uint64, level uint32) {
	if known, heard := l.peers[member]; heard && known == level {
		return
	}
	if l.peers == nil {
		l.peers = make(map[uint64]uint32)
	}
	l.peers[member] = level
}

// Apply notes that the member applies a command, and reports whether Applied has risen.
func (l *Levels) Apply(c Command) bool {
	before := l.Applied
	l.Applied = max(l.Applied, Level(c))
	return l.Applied > before
}

// TooNew reports whether one of the other members may be unable to apply a command. None is for a level that the log has
// had before: then every member has to be new enough anyway.
func (l *Levels) TooNew(c Command, self uint64, members []uint64) bool {
	level := Level(c)
	return level > l.Applied && slices.ContainsFunc(members, func(id uint64) bool { return id != self && l.peers[id] < level })
}

// Unheard reports whether one of the other members has not said yet which commands it can apply.
func (l *Levels) Unheard(self uint64, members []uint64) bool {
	return slices.ContainsFunc(members, func(id uint64) bool {
		_, heard := l.peers[id]
		return id != self && !heard
	})
}
